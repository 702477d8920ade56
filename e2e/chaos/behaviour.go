package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"flightline/shared/job"
	"flightline/shared/queue"
)

// input is what the driver sends to a handler.
type input struct {
	Tag int `json:"tag"`
	// Plan is what to do; "" leaves it to chance.
	Plan plan `json:"plan,omitempty"`
	// At is when to deliver the outcome, in Unix milliseconds.
	At int64 `json:"at,omitempty"`
	// Cue is a file: its modification time is when to deliver the outcome, and
	// until it exists the run goes on. "" means At.
	Cue string `json:"cue,omitempty"`
	// Size is that of the output, in bytes.
	Size int `json:"size,omitempty"`
	// Pad makes the input large.
	Pad string `json:"pad,omitempty"`
}

// plan is a handler's part in a scenario.
type plan string

const (
	quick  plan = "quick"  // complete at once
	steady plan = "steady" // heartbeats, and complete at At or on cue
	// deafOnce: the first run neither receives nor sends anything until it completes at At or
	// on cue; a later run is steady, and completes a little later than the first.
	// The first run completes later still by 0 to 3 s, with the Tag.
	deafOnce plan = "deaf once"
)

// ending is how a handler ends its run.
type ending string

const (
	complete ending = "complete"
	fail     ending = "fail"
	timeOut  ending = "time out"
	giveBack ending = "give back"
	overrun  ending = "overrun" // say nothing: somebody else has to end it
)

// behaviour is what a handler does.
type behaviour struct {
	cue              string        // the file that work waits for; "" means none
	work             time.Duration // from the beginning of the run, or from the cue
	end              ending
	deaf             bool // sends no heartbeats and receives nothing
	progress, chunks int
	size             int
}

const (
	megabyte = 1 << 20
	// shortTimeout selects jobs whose deadline comes soon: only those are made
	// to meet it.
	shortTimeout = 6 * time.Second
)

// choose draws what to do about a job, or does what the scenario wants.
// untilDeadline is how long the run may take.
func choose(rng *rand.Rand, in input, j *job.Job, lease, untilDeadline time.Duration, dieAt queue.Point) behaviour {
	if in.Plan != "" {
		return planned(in, j.Run)
	}
	b := behaviour{work: between(rng, 5*time.Millisecond, 250*time.Millisecond), end: complete}
	switch n := rng.IntN(100); {
	case n < 22:
		b.end = fail
	case n < 26:
		b.deaf, b.work = true, between(rng, lease/2, 3*lease)
	case n < 30:
		b.end = giveBack
	case n < 50:
		b.work, b.progress, b.chunks = between(rng, 300*time.Millisecond, 1500*time.Millisecond), rng.IntN(4), rng.IntN(6)
	case n < 62 && untilDeadline < shortTimeout:
		b.work = untilDeadline + between(rng, -300*time.Millisecond, 300*time.Millisecond)
	case n < 66 && untilDeadline < shortTimeout:
		b.work, b.end = untilDeadline, timeOut
	case n < 69 && untilDeadline < shortTimeout:
		b.end, b.work = overrun, untilDeadline+4*time.Second
	}
	large := 10
	if dieAt == queue.AfterPayload {
		large = 60
	}
	if b.end == complete && rng.IntN(100) < large {
		b.size = megabyte
	}
	return b
}

func planned(in input, run int) behaviour {
	b := behaviour{end: complete, size: in.Size, cue: in.Cue}
	if in.At > 0 {
		b.work = time.Until(time.UnixMilli(in.At))
	}
	if in.Plan == deafOnce {
		if b.deaf = run == 1; b.deaf {
			b.work += time.Duration(in.Tag%4) * time.Second
		} else {
			b.work += 15 * time.Millisecond
		}
	}
	return b
}

// finish waits until the work is done, or until ctx ends.
func (b behaviour) finish(ctx context.Context) {
	due := time.Now().Add(b.work)
	for b.cue != "" {
		if file, err := os.Stat(b.cue); err == nil {
			due = file.ModTime().Add(b.work)
			break
		}
		if !wait(ctx, again) {
			return
		}
	}
	wait(ctx, time.Until(due))
}

// output is what a run delivers: it names the run, and no two runs' outputs of
// one size share any part.
func output(j *job.Job, who string, size int) json.RawMessage {
	by := fmt.Sprintf("%s/%d/%d/%s", j.ID, j.Attempt, j.Run, who)
	pad := ""
	if size > 0 {
		pad = strings.Repeat(by+" ", size/(len(by)+1)+1)[:size]
	}
	return json.RawMessage(fmt.Sprintf(`{"by":%q,"pad":%q}`, by, pad))
}

// hashOf is how outputs are compared; "" is no output.
func hashOf(output []byte) string {
	if len(output) == 0 {
		return ""
	}
	sum := sha256.Sum256(output)
	return hex.EncodeToString(sum[:12])
}
