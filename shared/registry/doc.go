// Package registry holds what exists: endpoints, API keys, and the workers and
// instances that live as long as they beat. Each kind is a [Table], a typed
// view of one key-value bucket, with a cache in front that a watcher keeps up
// to date.
//
// A cache answers only while it can vouch for itself. Twice a second it
// compares what it applied with the last sequence of its bucket; one that
// lags, or cannot ask, stops answering after [Trust] and reads go to the
// bucket's leader. So a revoked key or a deleted endpoint is refused
// everywhere within that time whatever breaks, and usually within
// milliseconds.
//
// Every call gives up after a few seconds with [ErrUnavailable] when JetStream
// is away. The buckets are made by streams.Apply.
package registry
