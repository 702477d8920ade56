package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/pod"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/streams"
)

const (
	// renewals is how often the winner renews within the time that the bucket
	// keeps an unrenewed value: every 4 s of 12.
	renewals = 3
	// standbyInterval is the pause between two looks of a standby.
	standbyInterval = 500 * time.Millisecond
)

// Election lets one of several instances be active in a role. What the active
// one does must bear that another does it too for a while: a process that was
// suspended learns only afterwards that it is no longer active.
type Election struct {
	table    *Table[Leader]
	role, id string
	ttl      time.Duration
	log      *slog.Logger
}

// Leader is the value under a role.
type Leader struct {
	Instance string    `json:"instance"`
	Since    time.Time `json:"since"`
}

// NewElection returns the instance's way into the election for a role; both
// match [A-Za-z0-9_-]{1,128}, and instance is new with each start. It starts
// nothing. A nil log is silence. It returns ErrInvalid and bus.ErrUnavailable.
func NewElection(ctx context.Context, js jetstream.JetStream, role, instance string, log *slog.Logger) (*Election, error) {
	if !pod.ValidID(role) || !pod.ValidID(instance) {
		return nil, fmt.Errorf("%w: instance %q of role %q", ErrInvalid, instance, role)
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	table, err := OpenTable[Leader](ctx, js, streams.BucketLeaders)
	if err != nil {
		return nil, err
	}
	status, err := table.kv.Status(ctx)
	if err != nil {
		return nil, explain(ctx, "look at bucket "+table.bucket, err)
	}
	return &Election{
		table: table, role: role, id: instance, ttl: status.TTL(),
		log: log.With("role", role, "instance", instance),
	}, nil
}

// Active returns who is active in the role, or ErrNotFound if no instance is.
func (e *Election) Active(ctx context.Context) (Leader, error) {
	leader, _, err := e.table.Get(ctx, e.role)
	return leader, err
}

// Run waits until this instance wins, and then calls lead with a context that
// ends when ctx does or the role may have passed to another, at the latest
// when the bucket no longer keeps what was written last. After that it waits
// to win again. It returns nil at the end of ctx, having left the role so
// that another can have it at once, and what lead returns before its context
// ends, also if that is nil.
func (e *Election) Run(ctx context.Context, lead func(context.Context) error) error {
	outage := telemetry.NewOutageLog()
	for ctx.Err() == nil {
		asked := time.Now()
		revision, err := e.win(ctx)
		if err == nil {
			done, err := e.lead(ctx, asked, revision, lead)
			if done {
				return err
			}
			continue
		}
		if !errors.Is(err, ErrExists) && ctx.Err() == nil {
			outage.Warn(ctx, e.log, "election not possible, trying again", slog.Any("err", err))
		}
		_ = retry.Sleep(ctx, standbyInterval) // the loop ends with ctx
	}
	return nil
}

// win takes the role if no instance has it, or if this instance does: an answer
// may have been lost.
func (e *Election) win(ctx context.Context) (uint64, error) {
	me := Leader{Instance: e.id, Since: time.Now()}
	revision, err := e.table.Create(ctx, e.role, me)
	if !errors.Is(err, ErrExists) {
		return revision, err
	}
	revision, lost := e.own(ctx)
	if lost != nil {
		return 0, err
	}
	return e.table.Update(ctx, e.role, me, revision)
}

// lead runs f for as long as this instance has the role. done means that f
// ended by itself or with ctx, rather than by the loss of the role.
func (e *Election) lead(ctx context.Context, asked time.Time, revision uint64, f func(context.Context) error) (done bool, err error) {
	e.log.InfoContext(ctx, "active")
	held, release := context.WithCancel(ctx)
	defer release()
	ended := make(chan struct{})
	go func() { // waited for below
		defer close(ended)
		err = f(held)
	}()
	lost := e.renew(ctx, asked, revision, ended)
	release()
	<-ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if lost != nil {
		e.log.WarnContext(ctx, "no longer active", "err", lost)
		return err != nil, err
	}
	e.leave(ctx)
	return true, err
}

// errRoleLost means that another instance has the role, or none.
var errRoleLost = errors.New("registry: the role is no longer ours")

// renew writes the role again and again. It returns nil when ctx or the work
// ended, and why when the role is lost.
func (e *Election) renew(ctx context.Context, asked time.Time, revision uint64, ended <-chan struct{}) error {
	me := Leader{Instance: e.id, Since: time.Now()}
	for pause := e.ttl / renewals; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			return nil
		case <-time.After(pause):
		}
		now := time.Now()
		renewed, fresh, err := e.renewOnce(ctx, me, asked.Add(e.ttl), revision)
		switch {
		case err == nil && fresh:
			asked, revision, pause = now, renewed, e.ttl/renewals
		case err == nil:
			revision, pause = renewed, 0
		case errors.Is(err, errRoleLost) || time.Since(asked) >= e.ttl:
			return err
		default:
			pause = min(standbyInterval, time.Until(asked.Add(e.ttl)))
		}
	}
}

// renewOnce writes the role once more, or finds an earlier write of ours whose
// answer was lost: then it is not fresh.
func (e *Election) renewOnce(ctx context.Context, me Leader, until time.Time, revision uint64) (renewed uint64, fresh bool, err error) {
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	renewed, err = e.table.Update(within, e.role, me, revision)
	if !errors.Is(err, ErrConflict) {
		return renewed, true, err
	}
	renewed, err = e.own(within)
	return renewed, false, err
}

// own is the revision of this instance's last write, or errRoleLost.
func (e *Election) own(ctx context.Context) (uint64, error) {
	there, revision, err := e.table.Get(ctx, e.role)
	if errors.Is(err, ErrNotFound) || err == nil && there.Instance != e.id {
		return 0, errRoleLost
	}
	return revision, err
}

// leave gives the role back, if it is still ours.
func (e *Election) leave(ctx context.Context) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	revision, err := e.own(leaving)
	if err == nil {
		err = e.table.deleteAt(leaving, e.role, revision)
	}
	if err != nil && !errors.Is(err, errRoleLost) {
		e.log.InfoContext(ctx, "role not given back, it expires", "err", err)
	}
}
