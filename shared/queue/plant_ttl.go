//go:build plant_ttl

package queue

// plantShortTTL lets the record expire before its queue message: a bug that the chaos harness must find.
const plantShortTTL = true
