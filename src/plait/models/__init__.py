"""Models: what answers a think effect. `resolve.resolve` makes one from `provider:name`."""
