"""Who may do what: users, policies, and the gate that each request passes."""
