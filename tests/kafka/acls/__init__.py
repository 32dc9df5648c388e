"""ACLs beside Apache Kafka's: decisions of its authorizer, and answers of a running server."""
