"""The reference pages and schemas, made from the models and the code that registers the metrics, so never stale."""
