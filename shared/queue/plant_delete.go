//go:build plant_delete

package queue

// plantDeleteFirst removes the queue message before the record: a bug that the chaos harness must find.
const plantDeleteFirst = true
