package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/logs"
	"flightline/shared/pod"
	"flightline/shared/queue"
	"flightline/shared/registry"
	"flightline/shared/retry"
	"flightline/shared/web"
	"flightline/streams"
)

// acceptTimeout is how long after the mark an instance that saw the endpoint before it may
// take to queue a job: it waits for its turn for a second.
const acceptTimeout = 1100 * time.Millisecond

// remove deletes an endpoint. Every step may be repeated, so a deletion that
// was interrupted is completed by asking again. It returns endpoint.ErrBusy if
// there are jobs and force is not given; a job that is accepted meanwhile
// counts too, and then the endpoint serves again, unless the deletion was
// begun by somebody else: that one may have been forced. An endpoint that is
// made again under the id while it runs loses nothing. With force it also removes
// a queue whose endpoint is not on record any more.
func (s *Service) remove(ctx context.Context, id string, force bool) error {
	unlock, err := s.changing.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	e, err := s.registry.Endpoints.Find(ctx, id)
	if force && errors.Is(err, endpoint.ErrNotFound) {
		e, err = s.adopt(ctx, id)
	}
	if err != nil {
		return err
	}
	force = force || e.Force // as somebody asked for who may have got no answer
	if !e.Deleting {
		if err := s.mustBeUnlocked(ctx, id); err != nil {
			return err
		}
	}
	if e.QueueMade && !e.Deleting { // a queue that was lost may come back with its jobs
		if err := s.makeQueue(ctx, e); err != nil {
			return err
		}
	}
	if !force && !e.Deleting {
		if err := mustBeIdle(ctx, s.queue.Counts, e); err != nil {
			return err
		}
	}
	return s.withdraw(ctx, e, force)
}

// adopt makes a record, marked as being deleted, for a queue whose endpoint is not on
// record. Without such a queue it returns endpoint.ErrNotFound.
func (s *Service) adopt(ctx context.Context, id string) (endpoint.Endpoint, error) {
	e := endpoint.Endpoint{ID: id, Partition: partitionOf(id, s.cfg.Partitions), Deleting: true, Force: true} // Created is zero: the jobs are its own
	if !endpoint.ValidID(id) {
		return e, endpoint.ErrNotFound
	}
	if exists, err := s.queue.QueueExists(ctx, e); err != nil || !exists {
		return e, cmp.Or(err, endpoint.ErrNotFound)
	}
	adopted, err := s.registry.Endpoints.Create(ctx, e)
	if errors.Is(err, endpoint.ErrExists) { // made since
		return s.registry.Endpoints.Find(ctx, id)
	}
	return adopted, err
}

// withdraw marks the endpoint and destroys it. Without force it takes the mark back and
// returns endpoint.ErrBusy if there are jobs.
func (s *Service) withdraw(ctx context.Context, e endpoint.Endpoint, force bool) error {
	e.Force = force
	marked, revision, err := s.registry.Endpoints.MarkDeleting(ctx, e)
	if err != nil {
		return err
	}
	if err := s.registry.Instances.WaitSeen(ctx, revision); err != nil {
		return err
	}
	if !force {
		if err := s.stillIdle(ctx, marked, !e.Deleting); err != nil {
			return err
		}
	}
	return s.destroy(ctx, marked)
}

// destroy removes all of an endpoint that is marked, itself last. Another process may
// complete the same deletion meanwhile, and then one may be made again; so each
// step looks first which one is there.
func (s *Service) destroy(ctx context.Context, e endpoint.Endpoint) error {
	// Nothing looks for what is left once the endpoint is gone, and the next one of the id
	// would let its workers in: so it waits for the disk.
	dropTokens := func(ctx context.Context, e endpoint.Endpoint) error {
		if err := s.registry.Tokens.Drop(ctx, e.ID); err != nil {
			return err
		}
		return s.queue.Bus().Durable(ctx, streams.Bucket(streams.BucketTokens))
	}
	for _, step := range []func(context.Context, endpoint.Endpoint) error{
		s.dropQueue, s.dropCounts, s.dropWebhooks, dropTokens, s.registry.Endpoints.Delete,
	} {
		now, err := s.registry.Endpoints.Find(ctx, e.ID)
		switch {
		case errors.Is(err, endpoint.ErrNotFound), err == nil && !now.Created.Equal(e.Created):
			return nil // it is deleted
		case err != nil:
			return err
		case !now.Deleting: // the instance that marked it took that back
			return fmt.Errorf("delete endpoint %s: %w", e.ID, endpoint.ErrBusy)
		}
		if err := step(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) dropQueue(ctx context.Context, e endpoint.Endpoint) error {
	err := s.queue.DeleteEndpoint(ctx, e)
	if err == nil || errors.Is(err, bus.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("delete endpoint %s: %w: %w", e.ID, bus.ErrUnavailable, err)
}

func (s *Service) dropCounts(ctx context.Context, e endpoint.Endpoint) error {
	err := s.events.DropCounts(ctx, e.ID, s.queue.Now())
	if err == nil {
		err = s.events.DropStats(ctx, e.ID)
	}
	if err == nil {
		err = logs.Drop(ctx, s.queue.Bus(), e)
	}
	if err != nil {
		return fmt.Errorf("delete endpoint %s: %w: %w", e.ID, bus.ErrUnavailable, err)
	}
	return nil
}

// dropWebhooks forgets what an endpoint of the same id must not inherit: it has
// another secret. What still waits for its delivery is dropped by the instance that would
// deliver it.
func (s *Service) dropWebhooks(ctx context.Context, e endpoint.Endpoint) error {
	if err := s.deliveries.Drop(ctx, e); err != nil {
		return err
	}
	if err := s.registry.Destinations.Drop(ctx, e.ID); err != nil {
		return err
	}
	return s.queue.Bus().Durable(ctx, streams.Bucket(streams.BucketDestinations))
}

// mustBeUnlocked refuses to delete the endpoint of a worker that is not to be
// stopped, forced or not.
func (s *Service) mustBeUnlocked(ctx context.Context, id string) error {
	pods, err := s.registry.Pods.List(ctx)
	if err != nil {
		return err
	}
	var locked []string
	for _, p := range pods {
		if p.Endpoint == id && p.Locked && p.Status == pod.Running {
			locked = append(locked, p.ID)
		}
	}
	if len(locked) > 0 {
		return web.Errorf(web.PodConflict, "cannot delete this endpoint: pods of its workers are locked: %s", strings.Join(locked, ", "))
	}
	return nil
}

func mustBeIdle(ctx context.Context, counts *queue.Counts, e endpoint.Endpoint) error {
	empty, err := isEmpty(ctx, counts, e)
	if err == nil && !empty {
		return fmt.Errorf("delete endpoint %s: %w", e.ID, endpoint.ErrBusy)
	}
	return err
}

// isEmpty reports whether the endpoint has no job that waits or was handed out. A queue
// that is not made yet, or was deleted, has none.
func isEmpty(ctx context.Context, counts *queue.Counts, e endpoint.Endpoint) (bool, error) {
	empty, err := counts.IsEmpty(ctx, e)
	missing, ok := errors.AsType[*bus.MissingError](err)
	if ok && missing.Changing || errors.Is(err, endpoint.ErrNotFound) {
		return true, nil
	}
	return empty, err
}

// mustHaveNoJobs refuses to create an endpoint whose id has a queue with jobs of an earlier
// one, whose record was lost: they would run, with their inputs, on the new one's workers.
func mustHaveNoJobs(ctx context.Context, counts *queue.Counts, endpoints *registry.Endpoints, e endpoint.Endpoint) error {
	if !endpoint.ValidID(e.ID) {
		return nil // Create says so
	}
	if empty, err := isEmpty(ctx, counts, e); err != nil || empty {
		return err
	}
	if _, err := endpoints.Find(ctx, e.ID); !errors.Is(err, endpoint.ErrNotFound) {
		return err // nil: Create says that the id is taken
	}
	return web.Errorf(web.EndpointBusy, "cannot create endpoint %s: queue %s has jobs of an earlier endpoint of this id, whose record is lost; restore a backup, or cancel them: DELETE /v1/endpoints/%s?force=true", e.ID, streams.Jobs(e.ID), e.ID)
}

// stillIdle counts once more, now that nobody submits. If there are jobs after
// all it takes the mark back, provided that it is ours.
func (s *Service) stillIdle(ctx context.Context, e endpoint.Endpoint, ours bool) error {
	if err := retry.Sleep(ctx, acceptTimeout); err != nil {
		return err
	}
	err := mustBeIdle(ctx, s.queue.Counts, e)
	if errors.Is(err, endpoint.ErrBusy) && ours {
		if undo := s.registry.Endpoints.Unmark(ctx, e); undo != nil {
			return undo
		}
	}
	if err != nil {
		return err
	}
	now, err := s.registry.Endpoints.Find(ctx, e.ID)
	if err == nil && !now.Deleting { // the instance that marked it took that back
		return fmt.Errorf("delete endpoint %s: %w", e.ID, endpoint.ErrBusy)
	}
	return err
}

// outlive returns when nobody takes an endpoint that is made under the id now
// for the one deleted a moment ago: no memory holds the deleted one's secret any more.
func (s *Service) outlive(ctx context.Context, id string) error {
	deleted, err := s.registry.Endpoints.Deleted(ctx, id)
	if err != nil || deleted.IsZero() {
		return err
	}
	return retry.Sleep(ctx, min(registry.MaxStaleness, deleted.Add(registry.MaxStaleness).Sub(s.queue.Now())))
}
