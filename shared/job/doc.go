// Package job says what a job is: its statuses and the one table of
// transitions between them, the request that makes it, the bounds that the API
// promises, and the instants that decide how long it may wait, run and be
// read. It imports the standard library only, reads no clock and writes no
// log: time is always an argument.
package job
