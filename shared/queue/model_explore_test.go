package queue

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

// mNext is a state that follows another, what happened, and what it breaks.
type mNext struct {
	world     mWorld
	who, did  string
	violation string
}

// mWorkerNames and mAttemptNames spare a string for each of a million steps.
var (
	mWorkerNames  = [mWorkers]string{"worker " + mName(0), "worker " + mName(1)}
	mAttemptNames = [2]string{"attempt 0", "attempt 1"}
)

type (
	mStepFunc  = func(who, did string, do func(*mWorld))
	mCheckFunc = func(who, did string, do func(*mWorld) string)
)

// successors appends all states that one step leads to.
func (w mWorld) successors(rules mRules, all []mNext) []mNext {
	add := func(who, did string, do func(*mWorld) string) {
		all = append(all, mNext{world: w, who: who, did: did})
		next := &all[len(all)-1]
		next.violation = do(&next.world)
	}
	quietly := func(who, did string, do func(*mWorld)) {
		all = append(all, mNext{world: w, who: who, did: did})
		do(&all[len(all)-1].world)
	}
	urgent := false
	for i := range uint8(mWorkers) {
		k := w.workers[i]
		name := mWorkerNames[i]
		if !k.dead && !k.suspended {
			urgent = w.workerSteps(i, name, rules, add, quietly) || urgent
		}
		w.faults(i, name, quietly)
	}
	w.serverSteps(quietly)
	if !urgent {
		quietly("time", "passes", func(n *mWorld) { n.tick(rules) })
	}
	return all
}

// workerSteps are those of a worker that runs. It reports whether one of them
// takes no time, so that none may pass before.
func (w mWorld) workerSteps(i uint8, name string, rules mRules, add mCheckFunc, quietly mStepFunc) (urgent bool) {
	k := w.workers[i]
	served := !w.frozen && !k.cut
	if k.socket && k.step == mIdle {
		quietly(name, "gives back what it reads", func(n *mWorld) { n.releases(i, rules) })
		if served {
			add(name, "reads a delivery", func(n *mWorld) string { return n.reads(i, rules) })
		}
		urgent = true
	}
	switch {
	case k.step == mIdle && !k.socket && !k.pull && served:
		quietly(name, "pulls", func(n *mWorld) { n.workers[i].pull = true })
	case k.step == mWriting && served:
		add(name, "writes", func(n *mWorld) string { return n.writes(i, rules) })
		urgent = true
	case k.step == mHandling && served:
		holds := w.records[k.attempt].status == mRunning && w.records[k.attempt].holder == i && w.records[k.attempt].run == k.run
		quietly(name, "ends its job", func(n *mWorld) { n.ends(i, holds, true) })
		quietly(name, "ends its job, the ack is lost", func(n *mWorld) { n.ends(i, holds, false) })
		if holds && w.returns > 0 {
			quietly(name, "gives its job back", func(n *mWorld) { n.givesBack(i) })
		}
	case k.step == mNaking && served:
		quietly(name, "tells the server", func(n *mWorld) { n.workers[i].step = mIdle; n.nak(k.attempt) })
		urgent = true
	}
	return urgent
}

// releases: the slot that the delivery came for does not wait any more.
func (w *mWorld) releases(i uint8, rules mRules) {
	k := &w.workers[i]
	k.socket = false
	if !rules.spare || k.fresh() {
		w.nak(k.attempt)
	}
}

// nak is one without a delay, of any delivery, however old.
func (w *mWorld) nak(attempt uint8) {
	if attempt == w.attempt && w.message == mOut {
		w.message = mListed
	}
}

func (w *mWorld) ends(i uint8, holds, acks bool) {
	k := &w.workers[i]
	k.step = mIdle
	if !holds {
		return
	}
	w.end(k.attempt)
	if acks && w.there(k.attempt) {
		w.message = mGone
	}
}

func (w *mWorld) givesBack(i uint8) {
	k := &w.workers[i]
	w.returns--
	w.records[k.attempt].status = mGivenBack
	w.records[k.attempt].version++
	k.step = mNaking
}

// faults are what may happen to a worker at any time.
func (w mWorld) faults(i uint8, name string, quietly mStepFunc) {
	k := w.workers[i]
	if k.dead {
		return
	}
	if k.suspended {
		quietly(name, "is resumed", func(n *mWorld) { n.workers[i].suspended = false })
	} else if w.suspensions > 0 {
		quietly(name, "is suspended", func(n *mWorld) { n.suspensions--; n.workers[i].suspended = true })
	}
	if k.cut {
		quietly(name, "is reachable again", func(n *mWorld) { n.workers[i].cut = false })
	} else if w.cuts > 0 {
		quietly(name, "is cut off", func(n *mWorld) { n.cuts--; n.workers[i].cut, n.workers[i].pull = true, false })
	}
	if w.kills > 0 {
		quietly(name, "is killed", func(n *mWorld) { n.kills--; n.workers[i] = mWorker{dead: true, silent: true} })
	}
}

func (w mWorld) serverSteps(quietly mStepFunc) {
	if w.frozen {
		quietly("the server", "goes on", func(n *mWorld) { n.frozen = false; n.expire() })
		return
	}
	if w.freezes > 0 {
		quietly("the server", "stands still", func(n *mWorld) { n.freezes--; n.frozen = true })
	}
	if w.restarts > 0 {
		quietly("the server", "is killed and back", func(n *mWorld) { n.restarts--; n.restart() })
	}
	for i, k := range w.workers {
		if (w.message == mWaiting || w.message == mListed) && k.pull && !k.dead && !k.cut && !k.socket {
			quietly(mWorkerNames[i], "is given a delivery by the server", func(n *mWorld) { n.deliver(uint8(i)) })
		}
	}
	for a := range w.records {
		switch {
		case w.records[a].status == mEnded && w.records[a].ended == mKept && (int(w.attempt) != a || w.message == mGone):
			quietly(mAttemptNames[a], "is forgotten", func(n *mWorld) { n.records[a] = mRecord{status: mForgotten} })
		case w.records[a].status == mEnded && int(w.attempt) == a:
			quietly("the message of the end", "is removed", func(n *mWorld) { n.remove(uint8(a)) })
		}
	}
	if w.retries > 0 && w.records[0].status == mEnded && w.message == mGone {
		quietly("the job", "is retried", func(n *mWorld) { n.retries--; n.attempt, n.message, n.again = 1, mWaiting, false })
	}
}

func (w *mWorld) deliver(i uint8) {
	k := &w.workers[i]
	k.pull, k.socket, k.late, k.attempt, k.again = false, true, 0, w.attempt, w.again
	w.message, w.timer, w.again = mOut, 0, true
}

// restart forgets what was handed out (docs/design/jetstream.md#f11) and breaks connections.
func (w *mWorld) restart() {
	if w.message != mGone {
		w.message, w.again = mWaiting, false
	}
	for i := range w.workers {
		k := &w.workers[i]
		k.pull, k.service, k.steady = false, 0, false
	}
}

// expire puts a message whose lease is over on the redelivery list.
func (w *mWorld) expire() {
	if w.message == mOut && w.timer >= mLease {
		w.message = mListed
	}
}

// tick lets mTick pass: who lives beats and probes, and the server looks at its
// timers.
func (w *mWorld) tick(rules mRules) {
	w.timer = min(w.timer+1, mLease)
	for a := range w.records {
		if w.records[a].status == mEnded {
			w.records[a].ended = min(w.records[a].ended+1, mKept)
		}
	}
	for i := range w.workers {
		k := &w.workers[i]
		k.pull = false // it expired
		if k.dead {
			continue
		}
		if k.socket || k.step == mWriting {
			k.late = min(k.late+1, mLease)
		}
		if k.step == mWriting && rules.verify && !k.suspended && !k.fresh() {
			k.step = mIdle // its claim timed out
		}
		w.age(k)
	}
	if !w.frozen {
		w.expire()
	}
}

func (w *mWorld) age(k *mWorker) {
	if k.lives() {
		k.quiet = 0
	} else {
		k.quiet = min(k.quiet+1, mLease)
		k.silent = k.silent || k.step == mHandling && k.quiet >= mLease-1
	}
	if k.step == mHandling && !k.suspended {
		k.extended = 0
	} else {
		k.extended = min(k.extended+1, mLease)
	}
	if k.suspended || k.cut || w.frozen {
		k.service, k.steady = 0, false
		return
	}
	k.service, k.steady = min(k.service+1, mLease), true
	r := w.records[k.attempt]
	if k.step == mHandling && r.status == mRunning && r.run == k.run && w.there(k.attempt) {
		w.timer = 0 // its heartbeat; one of a message on the list leaves it there
	}
}

// explore visits every state that can be reached and returns the first way to
// one breaking an invariant, "" for none.
func explore(first mWorld, rules mRules) (states int, way string) {
	type step struct {
		world    mWorld
		from     int // its index, which is lower
		who, did string
	}
	seen := map[mWorld]struct{}{first: {}}
	reached := []step{{world: first}}
	trace := func(at int, last mNext) string {
		steps := []string{last.who + " " + last.did}
		for ; at > 0; at = reached[at].from {
			steps = append(steps, reached[at].who+" "+reached[at].did)
		}
		slices.Reverse(steps)
		return strings.Join(steps, "\n  ") + ": " + last.violation
	}
	var successors []mNext
	for at := 0; at < len(reached); at++ {
		successors = reached[at].world.successors(rules, successors[:0])
		for _, next := range successors {
			_, known := seen[next.world]
			if next.violation == "" && !known {
				next.violation = next.world.broken(rules)
			}
			if next.violation != "" {
				return len(seen), trace(at, next)
			}
			if !known {
				seen[next.world] = struct{}{}
				reached = append(reached, step{next.world, at, next.who, next.did})
			}
		}
	}
	return len(seen), ""
}

// broken is the invariant that a state breaks, "" if it breaks none.
func (w mWorld) broken(rules mRules) string {
	if w.outcomes[0] > 1 || w.outcomes[1] > 1 {
		return "an attempt has two outcomes"
	}
	if w.outcomes[w.attempt] == 0 && !w.recovers(rules) {
		return "no worker gets the job once all is well"
	}
	return ""
}

// recovers reports whether the job ends once all faults are over, in one
// ordinary course of things: what died is replaced, and everybody works.
func (w mWorld) recovers(rules mRules) bool {
	if w.frozen {
		w.frozen = false
		w.expire()
	}
	for i := range w.workers {
		k := &w.workers[i]
		if k.dead {
			*k = mWorker{}
		}
		k.suspended, k.cut = false, false
	}
	const patient = 4 * mLease // ticks: a lease until the message comes again, one of good service, one put off
	for range patient {
		for i := range uint8(mWorkers) {
			w.works(i, rules)
		}
		if w.outcomes[w.attempt] > 0 {
			return true
		}
		w.tick(rules)
	}
	return false
}

// works lets a worker do all that it can.
func (w *mWorld) works(i uint8, rules mRules) {
	k := &w.workers[i]
	if k.step == mNaking {
		k.step = mIdle
		w.nak(k.attempt)
	}
	for range mLost { // a conflict is decided on once more
		if k.step == mWriting {
			w.writes(i, rules)
		}
	}
	if k.step == mHandling {
		r := w.records[k.attempt]
		w.ends(i, r.status == mRunning && r.holder == i && r.run == k.run, true)
	}
	if k.step != mIdle {
		return
	}
	if !k.socket && (w.message == mWaiting || w.message == mListed) {
		w.deliver(i)
	}
	if k.socket {
		w.reads(i, rules)
	}
}

var deep = flag.Bool("deep", false, "explore three faults in a history, not two: takes minutes")

// mBudgets are what may go wrong in one history. Each is explored whole.
func mBudgets() map[string]mWorld {
	if *deep {
		return map[string]mWorld{
			"freeze, suspension and give-back": {freezes: 1, suspensions: 1, returns: 1},
			"freeze, kill and a cut":           {freezes: 1, kills: 1, cuts: 1},
			"two suspensions and a retry":      {suspensions: 2, retries: 1},
			"restart, suspension and a kill":   {restarts: 1, suspensions: 1, kills: 1},
			"cut, suspension and a retry":      {cuts: 1, suspensions: 1, retries: 1},
			"two freezes and a restart":        {freezes: 2, restarts: 1},
			"restart, cut and a give-back":     {restarts: 1, cuts: 1, returns: 1},
		}
	}
	return map[string]mWorld{
		"freeze and suspension":    {freezes: 1, suspensions: 1},
		"freeze and a kill":        {freezes: 1, kills: 1},
		"freeze and a give-back":   {freezes: 1, returns: 1},
		"freeze and a restart":     {freezes: 1, restarts: 1},
		"two suspensions":          {suspensions: 2},
		"suspension and give-back": {suspensions: 1, returns: 1},
		"suspension and a retry":   {suspensions: 1, retries: 1},
		"restart and a suspension": {restarts: 1, suspensions: 1},
		"restart and a retry":      {restarts: 1, retries: 1},
		"cut and a kill":           {cuts: 1, kills: 1},
		"cut and a retry":          {cuts: 1, retries: 1},
	}
}

func mBegin(budget mWorld) mWorld {
	for i := range budget.workers {
		budget.workers[i] = mWorker{service: mLease, steady: true}
	}
	return budget
}

// No history of the model breaks an invariant: an attempt has one outcome, a
// worker that lives keeps its job, nothing runs after it was forgotten, and a
// job that has not ended is run once all is well.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, budget := range mBudgets() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, way := explore(mBegin(budget), mRules{ask: true, verify: true, spare: true})
			t.Logf("%d states", states)
			if way != "" {
				t.Errorf("found:\n  %s", way)
			}
		})
	}
}

// The model finds what each rule mends, in the rules without it.
func TestModelFindsWhatARuleMends(t *testing.T) {
	for name, tc := range map[string]struct {
		rules  mRules
		budget mWorld
		want   string
	}{
		"a broker that stood still":           {mRules{verify: true, spare: true}, mWorld{freezes: 1}, "a living worker lost its job"},
		"an old delivery of a forgotten job":  {mRules{ask: true, spare: true}, mWorld{suspensions: 1}, "a job ran after it was forgotten"},
		"a late nak, and no holder was asked": {mRules{verify: true}, mWorld{suspensions: 1}, "a living worker lost its job"},
	} {
		t.Run(name, func(t *testing.T) {
			states, way := explore(mBegin(tc.budget), tc.rules)
			t.Logf("%d states, found:\n  %s", states, way)
			if !strings.HasSuffix(way, tc.want) {
				t.Errorf("got %q, want a way to: %s", way, tc.want)
			}
		})
	}
}
