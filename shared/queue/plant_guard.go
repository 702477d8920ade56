//go:build plant_guard

package queue

// plantNoGuard takes over without the guard of uninterrupted service: a bug that the chaos harness must find.
const plantNoGuard = true
