"""The controller: who is master of each broker set, and who is in sync with it; agreed on by a Raft group."""
