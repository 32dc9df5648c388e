"""``format("millstream")``: the batch and streaming source."""
