// Package registry keeps endpoints, API keys, pods, the tokens of workers, webhook
// destinations, idempotency keys, and the workers and instances that are there for as
// long as they send heartbeats. Each kind is a [Table], a typed
// view of one key-value bucket, with a cache in front that a watcher keeps up
// to date.
//
// A cache answers only while it can vouch for itself. Twice a second it
// compares what it applied with the last sequence of its bucket. A cache that
// lags, or cannot ask, stops answering after [MaxStaleness] and reads go to the
// bucket's leader. So a revoked key or a deleted endpoint is refused
// everywhere within that time whatever breaks, and usually within
// milliseconds.
//
// Every call gives up after a few seconds with [bus.ErrUnavailable] when JetStream
// is away. The buckets are made by streams.Apply.
//
// Each kind has a file: endpoints.go, keys.go, pods.go, tokens.go (of workers
// over HTTP), workers.go (by heartbeat), instances.go, destinations.go (of webhooks),
// idempotency.go, sessions.go and actions.go (of the console), scaling.go (the autoscaler's decisions). election.go picks the one
// active instance of a role.
package registry
