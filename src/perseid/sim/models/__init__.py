"""What can be played: each model's machines, clients, faults and promises."""
