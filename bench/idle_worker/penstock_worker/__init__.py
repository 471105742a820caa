"""In the place of the real package, which it hides: without this file Python would take that one."""
