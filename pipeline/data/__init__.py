"""Ray Data at the rim: reads, cleans, splits, tokenises, buckets and writes shards."""
