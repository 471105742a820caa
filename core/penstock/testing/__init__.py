"""What Penstock gives to tests of others. Nothing of the product imports it."""
