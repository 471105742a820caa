"""What Penstock gives to tests of others: nothing of the product imports it."""
