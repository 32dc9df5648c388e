"""What each principal may do: the authorizer, the ACLs, and the table that says what every request needs."""
