"""A small shop: orders, stock, payments. One package of an application that uses Perseid."""
