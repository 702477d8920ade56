package registry

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/streams"
)

const (
	// MaxActionJobs bounds the jobs of an action.
	MaxActionJobs = 10_000
	// maxActions bounds the actions that are kept, maxOwnActions those of one API key that go
	// on, maxActionBytes the ids of one, and maxActionFilter the bytes of its filter.
	maxActions, maxOwnActions, maxActionBytes, maxActionFilter = 100, 10, 600 << 10, 4 << 10
	// ActionSilence is how long an action that goes on may go unsaved. After that it
	// counts as interrupted.
	ActionSilence = 10 * time.Second
)

// ErrTooMany means that there are as many as may be.
var ErrTooMany = errors.New("registry: too many")

// Action is something that the console does to many jobs of an endpoint, in the order of
// their ids.
type Action struct {
	ID string `json:"id"`
	// Owner is derived from the API key that it is done with.
	Owner    string `json:"owner"`
	Endpoint string `json:"endpoint"`
	// What is "cancel" or "retry".
	What string `json:"what"`
	// Filter is the query of its jobs until all of them are listed, else "". Total is how many
	// are listed.
	Filter string `json:"filter,omitempty"`
	Total  int    `json:"total"`
	// Settled is how many of the ids have an outcome that is counted: Done, or Refused for
	// one of Errors. Those from Settled to Claimed may have been acted on, too.
	Settled int            `json:"settled"`
	Claimed int            `json:"claimed"`
	Done    int            `json:"done"`
	Refused int            `json:"refused"`
	Errors  map[string]int `json:"errors,omitempty"`
	Began   time.Time      `json:"began"`
	// Ended is zero until all ids are settled.
	Ended time.Time `json:"ended,omitzero"`
	// Stopped says that its runner gave it up.
	Stopped bool `json:"stopped,omitempty"`
	// Runner names the process, or part of one, that works on it.
	Runner string `json:"runner"`

	revision uint64
	saved    time.Time // by the clock of this process
}

// Over reports whether all ids are settled.
func (a *Action) Over() bool { return !a.Ended.IsZero() }

// Interrupted reports whether an action that is not over lost its runner.
func (a *Action) Interrupted(now time.Time) bool {
	return !a.Over() && (a.Stopped || now.Sub(a.saved) > ActionSilence)
}

// Actions are those of the last day (streams.ActionAge), at most 100: a new one takes the
// place of the oldest that is over or interrupted.
type Actions struct {
	states *Table[Action]
	ids    *Table[[]job.ID]
}

// OpenActions binds to the bucket. It starts nothing.
func OpenActions(ctx context.Context, js jetstream.JetStream) (*Actions, error) {
	states, err := OpenTable[Action](ctx, js, streams.BucketActions)
	if err != nil {
		return nil, err
	}
	ids, err := OpenTable[[]job.ID](ctx, js, streams.BucketActions)
	return &Actions{states: states, ids: ids}, err
}

// Keys of the bucket: what changes, and what does not.
const actionStates, actionIDs = "state.", "ids."

var validAction = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// ownerOf names an API key, which cannot be read from it.
func ownerOf(apiKey string) (string, error) {
	const length = 16
	name, err := hkdf.Key(sha256.New, []byte(apiKey), nil, "flightline action owner", length)
	if err != nil {
		return "", fmt.Errorf("name the owner of an action: %w", err)
	}
	return hex.EncodeToString(name), nil
}

// Begin stores a new action of the API key, which its caller works on from then on. It
// returns ErrInvalid for no ids, more than MaxActionJobs, or invalid ones;
// ErrTooMany while 100 actions go on, or 10 of the key; and bus.ErrUnavailable.
func (t *Actions) Begin(ctx context.Context, apiKey, endpoint, what string, ids []job.ID) (*Action, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: ids must be 1 to %d, got none", ErrInvalid, MaxActionJobs)
	}
	if err := checkJobs(ids); err != nil {
		return nil, err
	}
	a := &Action{Endpoint: endpoint, What: what, Total: len(ids)}
	return a, t.begin(ctx, apiKey, a, func() error {
		_, err := t.ids.Create(ctx, actionIDs+a.ID, ids)
		return err
	})
}

// BeginListing is Begin for an action whose jobs its caller lists by a filter, and then stores
// by SetJobs. It returns ErrInvalid for a filter that is empty or has more than 4 KB.
func (t *Actions) BeginListing(ctx context.Context, apiKey, endpoint, what, filter string) (*Action, error) {
	if filter == "" || len(filter) > maxActionFilter {
		return nil, fmt.Errorf("%w: filter must have 1 to %d bytes, got %d", ErrInvalid, maxActionFilter, len(filter))
	}
	a := &Action{Endpoint: endpoint, What: what, Filter: filter}
	return a, t.begin(ctx, apiKey, a, func() error { return nil })
}

// begin stores a new action, whose ids storeIDs stores first.
func (t *Actions) begin(ctx context.Context, apiKey string, a *Action, storeIDs func() error) (err error) {
	if a.Owner, err = ownerOf(apiKey); err != nil {
		return err
	}
	if err := t.makeRoom(ctx, a.Owner); err != nil {
		return err
	}
	a.ID, a.Began, a.Runner = rand.Text(), time.Now().UTC(), rand.Text()
	if err := storeIDs(); err != nil {
		return err
	}
	a.revision, err = t.states.Create(ctx, actionStates+a.ID, *a)
	return err
}

// SetJobs stores the ids that the runner of an action has listed by its Filter, and returns
// those that hold: a runner before it may have stored others just before it was gone. It
// returns ErrInvalid, ErrConflict if somebody else works on the action by now, and
// bus.ErrUnavailable; after the last one it may be called again.
func (t *Actions) SetJobs(ctx context.Context, a *Action, ids []job.ID) ([]job.ID, error) {
	if err := checkJobs(ids); err != nil {
		return nil, err
	}
	_, err := t.ids.Create(ctx, actionIDs+a.ID, ids)
	if errors.Is(err, ErrExists) {
		ids, _, err = t.Jobs(ctx, a.ID)
	}
	if err != nil {
		return nil, err
	}
	a.Filter, a.Total = "", len(ids)
	return ids, t.Save(ctx, a)
}

func checkJobs(ids []job.ID) error {
	size := 0
	for _, id := range ids {
		if size += len(id) + len(`"",`); !id.Valid() {
			return fmt.Errorf("%w: job id %.50q", ErrInvalid, id)
		}
	}
	if len(ids) > MaxActionJobs || size > maxActionBytes {
		return fmt.Errorf("%w: ids must be at most %d, of at most %d KB, got %d of %d KB", ErrInvalid, MaxActionJobs, maxActionBytes>>10, len(ids), size>>10)
	}
	return nil
}

// makeRoom removes the oldest action if there are as many as may be: one of the owner's if
// it has any. It refuses an owner of whom as many as may be go on.
func (t *Actions) makeRoom(ctx context.Context, owner string) error {
	all, err := t.states.list(ctx, actionStates+"*")
	if err != nil {
		return err
	}
	ahead, err := t.ahead(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	var over []entry[Action]
	goOn := 0
	for _, e := range all {
		if e.value.saved = e.written.Add(ahead); e.value.Over() || e.value.Interrupted(now) {
			over = append(over, e)
		} else if e.value.Owner == owner {
			goOn++
		}
	}
	switch {
	case goOn >= maxOwnActions:
		return fmt.Errorf("%w: %d actions on many jobs of this key go on; wait until one is over", ErrTooMany, goOn)
	case len(all) < maxActions:
		return nil
	case len(over) == 0:
		return fmt.Errorf("%w: %d actions on many jobs go on; wait until one is over", ErrTooMany, len(all))
	}
	if own := slices.DeleteFunc(slices.Clone(over), func(e entry[Action]) bool { return e.value.Owner != owner }); len(own) > 0 {
		over = own
	}
	oldest := slices.MinFunc(over, func(a, b entry[Action]) int { return a.value.Began.Compare(b.value.Began) })
	if err := t.ids.Delete(ctx, actionIDs+oldest.value.ID); err != nil {
		return err
	}
	return t.states.Delete(ctx, oldest.key)
}

// Find returns an action of the API key, or ErrNotFound, and bus.ErrUnavailable.
func (t *Actions) Find(ctx context.Context, apiKey, id string) (*Action, error) {
	if !validAction.MatchString(id) {
		return nil, fmt.Errorf("action %.50q: %w", id, ErrNotFound)
	}
	owner, err := ownerOf(apiKey)
	if err != nil {
		return nil, err
	}
	e, err := t.states.get(ctx, actionStates+id)
	if err != nil {
		return nil, err
	}
	if e.value.Owner != owner {
		return nil, fmt.Errorf("action %s of another key: %w", id, ErrNotFound)
	}
	ahead, err := t.ahead(ctx)
	if err != nil {
		return nil, err
	}
	e.value.revision, e.value.saved = e.revision, e.written.Add(ahead)
	return &e.value, nil
}

// ahead is how far the clock of this process is ahead of the server's, by which entries are
// written.
func (t *Actions) ahead(ctx context.Context) (time.Duration, error) {
	state, err := t.states.state(ctx)
	return time.Since(state.Time), err
}

// Jobs returns the ids of an action, and when it began by the clock of the server. It
// returns ErrNotFound once the action is over, and bus.ErrUnavailable.
func (t *Actions) Jobs(ctx context.Context, id string) (ids []job.ID, began time.Time, err error) {
	e, err := t.ids.get(ctx, actionIDs+id)
	return e.value, e.written, err
}

// Continue has the caller work on an interrupted action, as Find returned it. It returns
// ErrConflict if somebody else does so already, and bus.ErrUnavailable.
func (t *Actions) Continue(ctx context.Context, a *Action) error {
	a.Runner, a.Stopped = rand.Text(), false
	return t.Save(ctx, a)
}

// Save stores how far an action has come, for its runner. It returns
// ErrConflict if that is somebody else by now, and bus.ErrUnavailable; then it may be
// stored all the same, and Save may be called again.
func (t *Actions) Save(ctx context.Context, a *Action) error {
	revision, err := t.states.Update(ctx, actionStates+a.ID, *a, a.revision)
	if errors.Is(err, ErrConflict) {
		stored, getErr := t.states.get(ctx, actionStates+a.ID)
		if getErr != nil && !errors.Is(getErr, ErrNotFound) {
			return getErr
		}
		if getErr == nil && stored.value.Runner == a.Runner { // a save before that seemed to fail
			revision, err = t.states.Update(ctx, actionStates+a.ID, *a, stored.revision)
		}
	}
	if err != nil {
		return err
	}
	a.revision, a.saved = revision, time.Now()
	if a.Over() {
		return t.ids.Delete(ctx, actionIDs+a.ID)
	}
	return nil
}
