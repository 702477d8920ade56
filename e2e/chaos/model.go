package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// state is a job in the model: the state machine of the contract, written once
// more and on purpose not taken from package job. The zero value is a job that
// does not exist.
type state struct {
	attempt, run int
	status       string
}

// event is an operation on a job as somebody saw it.
type event struct {
	what    string // of a caller: submit, read, cancel, retry, with or without "?" or "refused"; "write" of anybody
	status  string // read or written
	attempt int    // written
	run     int
	gap     bool // writes of this attempt were missed, so pick-ups may be
}

// step returns the states that the event may lead to.
func step(s state, e event) []state {
	switch e.what {
	case "submit":
		if s.attempt == 0 {
			return []state{{1, 0, inQueue}}
		}
	case "submit?":
		if s.attempt == 0 {
			return []state{s, {1, 0, inQueue}}
		}
		return []state{s}
	case "read":
		if s.status == e.status || e.gap && s.status == inQueue && e.status == inProgress {
			return []state{s}
		}
	case "cancel":
		if s.status == inQueue || s.status == inProgress || s.status == cancelled {
			return []state{{s.attempt, s.run, cancelled}}
		}
	case "cancel refused":
		if terminal(s.status) && s.status != cancelled {
			return []state{s}
		}
	case "retry", "retry?":
		return retried(s, e.what == "retry?")
	case "retry refused":
		if s.attempt > 0 && !mayRetry(s) {
			return []state{s}
		}
	case "write":
		return written(s, e)
	}
	return nil
}

func mayRetry(s state) bool { return s.status == failed || s.status == timedOut }

// retried: the next attempt, or the one that somebody else's retry made.
func retried(s state, unsure bool) []state {
	var next []state
	if mayRetry(s) {
		next = append(next, state{s.attempt + 1, 0, inQueue})
	}
	if unsure || s.attempt > 1 {
		next = append(next, s)
	}
	return next
}

// written: a step of the attempt, or the confirmation of a step that another
// witness of it has told before.
func written(s state, e event) []state {
	next := state{e.attempt, e.run, e.status}
	switch {
	case next == s:
		return []state{s}
	case e.attempt < s.attempt && (e.status == failed || e.status == timedOut):
		return []state{s} // a new ttl for an attempt that was retried meanwhile
	case e.attempt != s.attempt || terminal(s.status):
		return nil
	}
	sameRun := e.run == s.run || e.gap && e.run > s.run
	running := s.status == inProgress || e.gap
	possible := false
	switch e.status {
	case inProgress:
		possible = e.run == s.run+1 || e.gap && e.run > s.run
	case inQueue:
		possible = sameRun && running
	case completed, failed, timedOut:
		possible = sameRun && running
	case cancelled:
		possible = sameRun
	}
	if !possible {
		return nil
	}
	return []state{next}
}

// lifecycle is the model for porcupine.
func lifecycle() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, _ any) []any {
			var next []any
			for _, n := range step(s.(state), in.(event)) { //nolint:forcetypeassert // nothing else is in a history
				next = append(next, n)
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

// checkTimeout bounds the search for an order of one job's events.
const checkTimeout = 20 * time.Second

// history: there is an order of all that was seen of the job, each event
// within its time, that the state machine could have taken.
func (v *evidence) history(s *history) []violation {
	ops := s.operations()
	switch porcupine.CheckOperationsTimeout(lifecycle(), ops, checkTimeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []violation{{"history", s.id, fmt.Sprintf("no order found in time for %d events", len(ops))}}
	case porcupine.Illegal:
	}
	return []violation{{"history", s.id, "the state machine cannot do this:\n" + describe(ops)}}
}

// operations are the events of a job with the times in which they happened.
type operations []porcupine.Operation

func (o *operations) add(e event, from, until int64) {
	*o = append(*o, porcupine.Operation{ClientId: len(*o), Input: e, Call: from, Return: max(until, from+1)})
}

func (s *history) operations() operations {
	var ops operations
	if _, known := s.submission(); !known {
		ops.add(event{what: "submit?"}, 0, math.MaxInt64)
	}
	for i, e := range s.calls {
		s.called(&ops, i, e)
	}
	for _, e := range s.work {
		if e.Kind == began { // the pick-up was before; how long before, the observer knows
			ops.add(event{what: "write", status: inProgress, attempt: e.Attempt, run: e.Run, gap: s.gaps[e.Attempt]}, s.pickedUp(e), e.At)
		}
		if e.Kind == gaveBack { // the observer may miss it: the next run begins at once
			ops.add(event{what: "write", status: inQueue, attempt: e.Attempt, run: e.Run, gap: s.gaps[e.Attempt]}, e.Call, e.At)
		}
		if e.Kind == ended {
			ops.add(event{what: "write", status: e.Status, attempt: e.Attempt, run: e.Run, gap: s.gaps[e.Attempt]}, e.Call, e.At)
		}
	}
	for _, w := range s.writes {
		e := event{what: "write", status: w.Status, attempt: w.attempt, run: w.Run, gap: s.gaps[w.attempt]}
		ops.add(e, w.at.UnixNano()-millisecond, w.seen.UnixNano()+followerLead)
	}
	return ops
}

// called adds what the i-th call says. Of one without an answer, a retry and
// a submission may have taken effect unseen; of the others the observer would
// have seen the record.
func (s *history) called(ops *operations, i int, e entry) {
	switch {
	case e.Kind == submitOp && e.Answer == yes:
		ops.add(event{what: "submit"}, e.Call, e.At)
	case e.Kind == submitOp:
		ops.add(event{what: "submit?"}, e.Call, settled(e))
	case e.Kind == retryOp, e.Kind == cancelOp && e.Answer != unknown:
		if what, seen := named(e); seen {
			ops.add(event{what: what}, e.Call, settled(e))
		}
	}
	if e.Status != "" && (e.Kind == submitOp || e.Kind == statusOp && !s.repeats(i)) {
		ops.add(event{what: "read", status: e.Status, gap: len(s.gaps) > 0}, e.Call, e.At)
	}
}

// named is what a cancel or a retry is to the model; a 404 is nothing.
func named(e entry) (string, bool) {
	switch e.Answer {
	case yes:
		return string(e.Kind), true
	case no:
		return string(e.Kind) + " refused", true
	case unknown:
		return string(e.Kind) + "?", true
	case gone:
	}
	return "", false
}

// repeats reports whether the i-th call is a read that says what the reads
// before and after it tell: it decides nothing.
func (s *history) repeats(i int) bool {
	same := func(j int) bool {
		return j >= 0 && j < len(s.calls) && s.calls[j].Kind == statusOp && s.calls[j].Answer == yes && s.calls[j].Status == s.calls[i].Status
	}
	return same(i-1) && same(i+1)
}

// pickedUp is the earliest moment of the pick-up that a handler's start follows.
// A write of the run after that start is not the pick-up: the observer missed it.
// It is 0 if the pick-up was not seen and no caller ever named the job.
func (s *history) pickedUp(e entry) int64 {
	for _, w := range s.writes {
		if at := w.at.UnixNano() - millisecond; w.attempt == e.Attempt && w.Run == e.Run && at < e.At {
			return at
		}
	}
	if len(s.calls) == 0 {
		return 0
	}
	return s.calls[0].Call
}

func describe(ops operations) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	zero := ops[0].Call
	var b strings.Builder
	for _, o := range ops {
		e := o.Input.(event) //nolint:forcetypeassert // nothing else is in a history
		fmt.Fprintf(&b, "\t%9.3f to %9.3f ms: %s %s %d/%d", float64(o.Call-zero)/1e6, float64(o.Return-zero)/1e6, e.what, e.status, e.attempt, e.run)
		if e.gap {
			b.WriteString(" (writes were missed)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}
