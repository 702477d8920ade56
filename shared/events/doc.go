// Package events is the log of what happened to jobs: the stream EVENTS, and
// the counts that are made of it. It knows no HTTP.
//
// An event has one place, named by its endpoint, kind, job, attempt and run,
// which is written once. So a process that was interrupted appends again
// all that could be missing, and several may do so at once. The totals of an
// endpoint are folded from the events in the order of the stream; they say up
// to which event they count, and change by compare-and-set. So each event
// counts once, by however many processes and however often it is folded.
package events
