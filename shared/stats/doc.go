// Package stats is what an endpoint's history says in numbers: points in time with
// counts and percentiles, and failures by their cause. It is pure: the standard library
// only, no clock, no storage. shared/events folds the log into it (docs/adr/0059).
package stats
