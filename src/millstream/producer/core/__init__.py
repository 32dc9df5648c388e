"""The producer as a pure core: records into batches, batches into requests, outcomes into retries."""
