package queue

import (
	"testing"
	"time"

	"flightline/shared/job"
)

func TestJudge(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	const lease = 30 * time.Second
	served := delivery{seq: 7, expires: now.Add(time.Hour), holder: "me", now: now, service: lease, lease: lease, maxLost: 3}
	with := func(change func(*delivery)) delivery {
		d := served
		change(&d)
		return d
	}
	asked := with(func(d *delivery) { d.asked = true })
	held := func(change func(*record)) *record {
		r := &record{Job: job.Job{Expires: now.Add(time.Hour), Deadline: now.Add(time.Minute)}, queueSeq: 7, holder: "other"}
		r.restoreStatus(job.InProgress)
		if change != nil {
			change(r)
		}
		return r
	}
	status := func(s job.Status) *record {
		return held(func(r *record) { r.restoreStatus(s); r.Deadline = time.Time{} })
	}
	waiting := func(change func(*record)) *record {
		return held(func(r *record) {
			r.restoreStatus(job.InQueue)
			change(r)
		})
	}
	requeued := func(longer time.Duration, at time.Time) *record {
		return waiting(func(r *record) { r.requeued, r.queueExpires, r.changed = true, served.expires.Add(longer), at })
	}
	expired := func(s job.Status) *record {
		r := status(s)
		r.Expires = now
		return r
	}
	detached := func(seq uint64, requeued bool) *record {
		return held(func(r *record) { r.queueSeq, r.requeued = seq, requeued })
	}
	astray := func(since time.Duration, before int) *record {
		return held(func(r *record) { r.confirm, r.Started, r.astray = time.Second, now.Add(-since), before })
	}
	tests := []struct {
		name string
		r    *record
		d    delivery
		want verdict
	}{
		{"nobody has touched it", nil, served, begin},
		{"untouched, but its ttl is over", nil, with(func(d *delivery) { d.expires = now }), hold},
		{"completed", status(job.Completed), served, drop},
		{"failed", status(job.Failed), served, drop},
		{"timed out", status(job.TimedOut), served, drop},
		{"cancelled", status(job.Cancelled), served, drop},
		{"cancelled and expired", expired(job.Cancelled), served, drop},
		{"given back", status(job.InQueue), served, resume},
		{"its ttl was made shorter and is over", expired(job.InQueue), served, hold},
		{"about to be replaced", requeued(time.Hour, now), served, hold},
		{"about to be replaced for too long", requeued(time.Hour, now.Add(-replacing)), served, requeue},
		{"replaced", requeued(0, now), served, resume},
		{"held, and this process saw a whole lease", held(nil), asked, takeOver},
		{"held, and there was an outage since", held(nil), with(func(d *delivery) { d.asked = true; d.service = lease - 1 }), hold},
		{"held, and this process just started", held(nil), with(func(d *delivery) { d.asked = true; d.service = 0 }), hold},
		{"held, two workers lost before", held(func(r *record) { r.Lost = 2 }), asked, giveUp},
		{"held, two lost before, but an outage", held(func(r *record) { r.Lost = 2 }), with(func(d *delivery) { d.asked = true; d.service = 0 }), hold},
		{"held, its holder was not asked", held(nil), served, ask},
		{"held, and two lost before, its holder was not asked", held(func(r *record) { r.Lost = 2 }), served, ask},
		{"held, its holder lives", held(nil), with(func(d *delivery) { d.asked, d.alive = true, true }), hold},
		{"nobody said that it arrived", astray(time.Minute, 0), served, handAgain},
		{"nobody said so, and one was lost before", held(func(r *record) { r.Lost, r.confirm, r.Started = 2, time.Second, now.Add(-time.Minute) }), served, handAgain},
		{"nobody said so yet", astray(time.Second-1, 0), served, hold},
		{"nobody could say so in an outage", astray(time.Minute, 0), with(func(d *delivery) { d.service = time.Second - 1 }), hold},
		{"nobody said so, this process saw enough of it", astray(time.Minute, 0), with(func(d *delivery) { d.service = time.Second }), handAgain},
		{"nobody said so, once too often", astray(time.Minute, astrayMost), asked, takeOver},
		{"nobody said so, past its deadline", held(func(r *record) { r.confirm, r.Deadline = time.Second, now.Add(-forgotten) }), served, tooLate},
		{"held by this taker", held(nil), with(func(d *delivery) { d.running = true }), hold},
		{"written by this taker, which runs nothing", held(func(r *record) { r.holder = "me" }), with(func(d *delivery) { d.service = 0 }), adopt},
		{"held, past its deadline, the holder is at it", held(func(r *record) { r.Deadline = now.Add(-time.Second) }), served, hold},
		{"held, past its deadline and forgotten", held(func(r *record) { r.Deadline = now.Add(-forgotten) }), served, tooLate},
		{"held under another message", detached(6, false), served, stray},
		{"given back without a message", detached(6, true), served, resume},
		{"held and expired long ago", held(func(r *record) { r.Expires = now.Add(-forgotten) }), served, drop},
		{"held and expired", held(func(r *record) { r.Expires = now }), served, hold},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := judge(tc.r, tc.d); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPatience(t *testing.T) {
	for service, want := range map[time.Duration]time.Duration{0: 31 * time.Second, 20 * time.Second: 11 * time.Second, time.Hour: time.Second} {
		if got := patience(delivery{service: service, lease: 30 * time.Second}); got != want {
			t.Errorf("after %v of service: %v, want %v", service, got, want)
		}
	}
	if got := patience(delivery{service: time.Hour, lease: 30 * time.Second, alive: true}); got != 30*time.Second {
		t.Errorf("its holder lives: %v, want its lease", got)
	}
}
