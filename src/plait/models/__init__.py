"""Models, which answer think effects. `resolve.resolve` makes one from `provider:name`."""
