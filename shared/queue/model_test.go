package queue

import (
	"time"

	"flightline/shared/job"
	"flightline/shared/record"
)

// A model of one job, its queue message, its records and the workers that may
// run it, small enough to be explored whole (model_explore_test.go). What a
// worker does with a delivery is decided by the product's own functions: decide,
// patience and received.fresh. What the server does is as the facts of streams
// pin it: facts_freeze_test.go, facts_acks_test.go and facts_crash_test.go.

const (
	// mTick is the model's unit of time: longer than maxProbeGap and settleTime, so
	// that a process notices a tick without service, and at least as long as a pull.
	mTick    = 5 * time.Second
	mLease   = 3 // ticks
	mWorkers = 2
	mLost    = 3 // maxLostWorkers
	mKept    = 2 // ticks for which a record is kept after its end: MinRetention and forgetGrace
)

// mRules are the rules that this change made, so that the model can be shown to
// find what each of them mends.
type mRules struct {
	ask    bool // the holder is asked before a takeover
	verify bool // a late delivery, and a late pick-up, are compared with the queue
	spare  bool // a late delivery is not given back
}

type mMessage uint8

const (
	mWaiting mMessage = iota
	mOut              // delivered: its timer runs
	mListed           // in the server's redelivery list, whatever its timer says
	mGone
)

type mStatus uint8

const (
	mNone mStatus = iota
	mRunning
	mGivenBack
	mEnded
	mForgotten // mNone to who reads it
)

// mRecord is the record of an attempt.
type mRecord struct {
	status            mStatus
	holder, run, lost uint8
	version           uint8 // what a compare-and-set expects
	ended             uint8 // ticks since its end, mKept at most
}

type mStep uint8

const (
	mIdle mStep = iota
	mWriting
	mHandling
	mNaking // gave its job back and has not yet told the server
)

type mWorker struct {
	dead, suspended, cut bool

	pull    bool  // open at the server
	service uint8 // ticks of service without a gap, mLease at most
	steady  bool

	socket  bool // a delivery that was not read
	again   bool // it is not the first, as the server counts
	attempt uint8

	step     mStep
	late     uint8 // ticks since the pull of the delivery was asked for, mLease at most
	base     mRecord
	decided  decision
	run      uint8
	extended uint8 // ticks since it last said that it lives, mLease at most
	silent   bool  // it did not live for a lease, or was dead, in this run
	quiet    uint8 // ticks for which it has not lived, mLease at most
}

// lives: the process runs and reaches the server, if that serves.
func (w mWorker) lives() bool { return !w.dead && !w.suspended && !w.cut }

// mWorld is a state. It is comparable.
type mWorld struct {
	message  mMessage
	timer    uint8 // ticks since the last delivery or heartbeat, mLease at most
	again    bool  // it was delivered before, as the server counts
	attempt  uint8 // of the message: 0 or 1
	records  [2]mRecord
	outcomes [2]uint8
	frozen   bool
	workers  [mWorkers]mWorker

	// What may still happen.
	freezes, restarts, suspensions, kills, cuts, returns, retries uint8
}

// record is the attempt's record as decide sees it, nil for none.
func (w *mWorld) record(attempt uint8) *record.Record {
	m := w.records[attempt]
	now := time.UnixMilli(0)
	r := &record.Record{Job: job.Job{Run: int(m.run), Lost: int(m.lost), Expires: now.Add(time.Hour), Deadline: now.Add(time.Hour)}, Holder: mName(m.holder), QueueSeq: uint64(attempt)}
	switch m.status {
	case mNone, mForgotten:
		return nil
	case mRunning:
		r.Status = job.InProgress
	case mGivenBack:
		r.Status = job.InQueue
		r.Deadline = time.Time{}
	case mEnded:
		r.Status = job.Failed
	}
	return r
}

func mName(worker uint8) string { return string('a' + rune(worker)) }

// there reports whether the queue message of a delivery of this attempt is there.
func (w *mWorld) there(attempt uint8) bool { return attempt == w.attempt && w.message != mGone }

// reads decides what worker i does with the delivery that it reads. violation
// is what the decision breaks.
func (w *mWorld) reads(i uint8, rules mRules) (violation string) {
	k := &w.workers[i]
	k.socket = false
	m, now := k.received()
	doubtful := m.doubtful(now, mLease*mTick) || k.again && w.record(k.attempt) == nil
	if rules.verify && doubtful && !w.there(k.attempt) {
		return ""
	}
	return w.decides(i, rules)
}

// received is the worker's delivery, and the time.
func (w mWorker) received() (received, time.Time) {
	asked := time.UnixMilli(0)
	return received{asked: asked, steady: w.steady}, asked.Add(time.Duration(w.late) * mTick)
}

func (w mWorker) fresh() bool {
	m, now := w.received()
	return m.fresh(now, mLease*mTick)
}

// decides calls decide, and asks the holder where decide says so.
func (w *mWorld) decides(i uint8, rules mRules) (violation string) {
	k := &w.workers[i]
	r := w.record(k.attempt)
	d := deliveryFacts{
		seq: uint64(k.attempt), expires: time.UnixMilli(0).Add(time.Hour), holder: mName(i), now: time.UnixMilli(0),
		available: time.Duration(k.service) * mTick, lease: mLease * mTick, maxLost: mLost, asked: !rules.ask,
	}
	v := decide(r, d)
	if v == decideAsk {
		holder := w.workers[w.records[k.attempt].holder]
		d.asked = true
		d.alive = holder.lives() && holder.step == mHandling && holder.run == w.records[k.attempt].run && holder.extended < mLease
		v = decide(r, d)
	}
	switch v {
	case decideBegin, decideResume, decideAdopt, decideTakeOver, decideGiveUp:
		k.step, k.decided, k.base = mWriting, v, w.records[k.attempt]
		if v == decideTakeOver || v == decideGiveUp {
			return w.checkTakeover(k.attempt)
		}
	case decideDrop:
		if w.there(k.attempt) {
			w.remove(k.attempt)
		}
	case decideHold:
		w.postpone(k)
	case decideHandAgain, decideTimeOut, decideDetach, decideRequeue, decideAsk:
		return "unexpected decision"
	}
	return ""
}

// postpone puts the message off: off the redelivery list, with a timer that ends
// after patience, which is a tick or a lease here.
func (w *mWorld) postpone(k *mWorker) {
	if !w.there(k.attempt) || !k.fresh() {
		return
	}
	w.message, w.timer = mOut, mLease-1
	if k.service < mLease {
		w.timer = k.service
	}
}

func (w *mWorld) checkTakeover(attempt uint8) string {
	r := w.records[attempt]
	holder := w.workers[r.holder]
	if holder.lives() && !holder.silent && holder.step == mHandling && holder.run == r.run {
		return "a living worker lost its job"
	}
	return ""
}

// writes is the compare-and-set that follows a decision.
func (w *mWorld) writes(i uint8, rules mRules) (violation string) {
	k := &w.workers[i]
	r := &w.records[k.attempt]
	created := k.base.status == mNone && r.status == mForgotten // a create expects nothing
	if *r != k.base && !created {
		return w.decides(i, rules)
	}
	forgotten := r.status == mForgotten
	if k.decided == decideGiveUp {
		w.end(k.attempt)
		k.step = mIdle
		return ""
	}
	next := mRecord{status: mRunning, holder: i, run: r.run + 1, lost: r.lost, version: r.version + 1}
	if k.decided == decideTakeOver {
		next.lost++
	}
	if rules.verify && k.decided == decideBegin && !k.fresh() && !w.there(k.attempt) {
		k.step = mIdle // the record that it made expires at once
		return ""
	}
	*r = next
	k.step, k.run, k.extended, k.quiet, k.silent = mHandling, next.run, 0, 0, false
	if forgotten {
		return "a job ran after it was forgotten"
	}
	return ""
}

// remove takes the message of an attempt that ended away. Changes.Remove looks
// again later for a message that it saw. That it looks for the first time within
// the milliseconds between this and another worker's read of its own delivery is
// left out.
func (w *mWorld) remove(attempt uint8) {
	w.message = mGone
	w.records[attempt].ended = min(w.records[attempt].ended, mKept-1)
}

func (w *mWorld) end(attempt uint8) {
	w.records[attempt].status = mEnded
	w.records[attempt].version++
	w.outcomes[attempt]++
}
