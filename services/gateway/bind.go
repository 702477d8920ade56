package gateway

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/registry"
	"flightline/shared/web"
)

const (
	// refusedPause keeps a worker whose token was revoked from polling without
	// a pause, as RunPod's SDK does whatever it is answered.
	refusedPause = time.Second
)

// caller is the worker that sent a request. It shares no memory with it.
type caller struct {
	endpoint endpoint.Endpoint
	worker   string
	// gone means that the endpoint is being deleted, or was.
	gone bool
	// hash is that of the token that was shown.
	hash string
	// left is when it left a poll before its answer, in server time; zero if it
	// has polled since.
	left time.Time
}

// key names the worker among all.
func (c caller) key() string { return c.endpoint.ID + "." + c.worker }

// caller checks the worker's token: bare, as workers send it, or as a bearer's.
func (s *Service) caller(c *fiber.Ctx) (caller, error) {
	worker, _ := param(c, "worker")
	endpointID := strings.Clone(c.Params("endpoint"))
	if wait := web.Barred(c); wait > 0 && !s.registry.Tokens.Known(endpointID, worker) {
		return caller{}, web.TooManyUnknown(c, wait)
	}
	who, err := s.admit(c, endpointID, worker)
	if errors.Is(err, registry.ErrUnauthorized) {
		web.Refused(c)
	}
	return who, err
}

func (s *Service) admit(c *fiber.Ctx, endpointID, worker string) (caller, error) {
	ctx, cancel := context.WithTimeout(c.UserContext(), web.AnswerWithin)
	defer cancel()
	token, err := s.registry.Tokens.Check(ctx, web.Key(c), endpointID, worker)
	if err != nil {
		return caller{}, err
	}
	who := caller{worker: worker, hash: token.Hash, left: token.Disconnected}
	who.endpoint, err = s.registry.Endpoints.Get(ctx, endpointID)
	if isNotFound(err) {
		who.endpoint.ID, who.gone, err = endpointID, true, nil
	}
	return who, err
}

// poller is caller for a request that is sent again at once whatever it is
// answered.
func (s *Service) poller(c *fiber.Ctx) (caller, error) {
	who, err := s.caller(c)
	if err == nil || c.Get(fiber.HeaderAuthorization) == "" {
		return who, err
	}
	held, release := web.LongPoll(c, min(refusedPause, s.cfg.Hold))
	defer release()
	<-held.Done()
	return who, err
}

// jobID reads the job's id, which need not be one.
func jobID(c *fiber.Ctx) job.ID {
	id, _ := param(c, "id")
	return job.ID(id)
}

// param reads a part of the path. A worker whose address has no ? appends its
// parameters to the path, as /job-take/w1&job_in_progress=0; they are returned
// too.
func param(c *fiber.Ctx, name string) (value string, query url.Values) {
	value, rest, found := strings.Cut(strings.Clone(c.Params(name)), "&")
	if !found {
		return value, nil
	}
	query, _ = url.ParseQuery(rest) // what it could read will do
	return value, query
}

// query reads a parameter, "" if it is absent.
func query(c *fiber.Ctx, name string) string {
	if text := c.Query(name); text != "" {
		return strings.Clone(text)
	}
	for _, last := range []string{"worker", "id"} {
		if _, more := param(c, last); more.Has(name) {
			return more.Get(name)
		}
	}
	return ""
}

// open reports whether the worker may be given jobs by a poll that began at
// began: its endpoint is there, its token is the one it showed, and it neither
// drains nor restarts itself. What cannot be known counts as open.
func (s *Service) open(ctx context.Context, who caller, began time.Time) bool {
	_, open := s.openToken(ctx, who, began)
	return open
}

// openToken is open that also returns the token, the zero value if it is not known.
func (s *Service) openToken(ctx context.Context, who caller, began time.Time) (token registry.Token, open bool) {
	token, err := s.registry.Tokens.Find(ctx, who.endpoint.ID, who.worker)
	if isNotFound(err) || err == nil && !mayTake(token, who.hash, began) {
		return token, false
	}
	_, err = s.registry.Endpoints.Get(ctx, who.endpoint.ID)
	return token, !isNotFound(err)
}

const (
	// refreshQuiet is how long after a worker said that it restarts itself nothing
	// is given to it: its last poll may come after that.
	refreshQuiet = 3 * time.Second
	// fleetRefreshQuiet is the same for a worker of a fleet, whose autoscaler replaces it
	// some seconds later if it goes on, as RunPod's SDK does. Were it given the next job
	// before, it would end that one too, and begin the time again.
	fleetRefreshQuiet = 30 * time.Second
)

func mayTake(token registry.Token, hash string, began time.Time) bool {
	quiet := refreshQuiet
	if token.Expires { // as those of fleets do
		quiet = fleetRefreshQuiet
	}
	return token.Hash == hash && !token.Draining && !token.Refreshed.After(began.Add(-quiet))
}
