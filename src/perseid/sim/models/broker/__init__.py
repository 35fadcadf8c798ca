"""A broker with its name server and slaves, also with slaves that act for their master."""
