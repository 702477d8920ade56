package api

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/web"
)

// forEndpoint is the handler h, which gets the endpoint that the path names.
func (s *Service) forEndpoint(h func(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error) fiber.Handler {
	return web.InTime(func(ctx context.Context, c *fiber.Ctx) error {
		e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
		if err != nil {
			return err
		}
		return h(ctx, c, e)
	})
}

// forJob is the handler h, which gets the endpoint and the job that the path names. The job
// need not exist.
func (s *Service) forJob(h func(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint, id job.ID) error) fiber.Handler {
	return web.InTime(func(ctx context.Context, c *fiber.Ctx) error {
		e, id, err := s.job(ctx, c)
		if err != nil {
			return err
		}
		return h(ctx, c, e, id)
	})
}

// job reads the endpoint and the job's id.
func (s *Service) job(ctx context.Context, c *fiber.Ctx) (endpoint.Endpoint, job.ID, error) {
	e, err := s.registry.Endpoints.Get(ctx, c.Params("endpoint"))
	if err != nil {
		return endpoint.Endpoint{}, "", err
	}
	id := job.ID(strings.Clone(c.Params("id")))
	if !id.Valid() {
		return endpoint.Endpoint{}, "", job.ErrNotFound
	}
	return e, id, nil
}

// ttlOf reads a new ttl, if one is given.
func ttlOf(c *fiber.Ctx) (ttl time.Duration, given bool, err error) {
	if !c.Context().QueryArgs().Has("ttl") {
		return 0, false, nil
	}
	ttl, err = millis(c, "ttl", 0, job.MinChangedTTL, job.MaxTTL)
	return ttl, true, err
}

// millis reads a parameter of whole milliseconds. The text of the error is what RunPod's
// service says.
func millis(c *fiber.Ctx, name string, standard, least, most time.Duration) (time.Duration, error) {
	if !c.Context().QueryArgs().Has(name) {
		return standard, nil
	}
	n, err := strconv.ParseInt(c.Query(name), 10, 64)
	if err != nil || n < least.Milliseconds() || n > most.Milliseconds() {
		return 0, web.Errorf(web.InvalidRequest, "%s is invalid; must be between %d and %d, got %.20q", name, least.Milliseconds(), most.Milliseconds(), c.Query(name))
	}
	return time.Duration(n) * time.Millisecond, nil
}

// choices reads a parameter that lists some of all, separated by commas, in whatever order;
// none means no choice.
func choices[T any](c *fiber.Ctx, name string, all []T, spell func(T) string) (wanted []T, err error) {
	if c.Query(name) == "" {
		return nil, nil
	}
	var names []string
	given := strings.Split(c.Query(name), ",")
	for _, choice := range all {
		names = append(names, spell(choice))
		if slices.Contains(given, spell(choice)) {
			wanted = append(wanted, choice)
		}
	}
	for _, text := range given {
		if !slices.Contains(names, text) {
			return nil, web.Errorf(web.InvalidRequest, "%s is invalid; must be one or several, separated by commas, of %s, got %.50q", name, strings.Join(names, ", "), text)
		}
	}
	return wanted, nil
}

// includeVersion asks for the version of the job's worker.
const includeVersion = "includeVersion"

const (
	headerPrefer            = "Prefer"
	headerPreferenceApplied = "Preference-Applied"
)

// preferences are those of RFC 7240 that mean something here. What cannot be
// honoured is ignored, as it says.
type preferences struct {
	wait  time.Duration // whole seconds, at most job.MaxWait; 0: not given
	async bool          // respond-async
}

// preferencesOf reads the Prefer headers; most requests have none.
func preferencesOf(c *fiber.Ctx) preferences {
	if len(c.Request().Header.Peek(headerPrefer)) == 0 {
		return preferences{}
	}
	var list []string
	for _, value := range c.Request().Header.PeekAll(headerPrefer) {
		list = append(list, string(value))
	}
	return parsePreferences(strings.Join(list, ","))
}

// parsePreferences reads a list of preferences. Of a repeated preference the
// first counts.
func parsePreferences(list string) preferences {
	var p preferences
	waitGiven := false
	for preference := range strings.SplitSeq(list, ",") {
		preference, _, _ = strings.Cut(preference, ";") // parameters mean nothing here
		name, value, _ := strings.Cut(preference, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "respond-async":
			p.async = true
		case "wait":
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if !waitGiven && err == nil {
				p.wait = min(time.Duration(seconds)*time.Second, job.MaxWait)
			}
			waitGiven = true
		}
	}
	return p
}

// preferredWait is how long the client prefers to wait, 0 unless it says so.
func preferredWait(c *fiber.Ctx) time.Duration {
	p := preferencesOf(c)
	if p.wait > 0 {
		c.Set(headerPreferenceApplied, "wait="+strconv.Itoa(int(p.wait/time.Second)))
	}
	return p.wait
}

// syncWait is how long an operation waits that does so in any case: what the
// query says, else what the client prefers, else the standard. 0 means that the
// client prefers an answer at once.
func syncWait(c *fiber.Ctx) (time.Duration, error) {
	wait, err := millis(c, "wait", job.DefaultWait, job.MinWait, job.MaxWait)
	if err != nil || c.Context().QueryArgs().Has("wait") {
		return wait, err
	}
	p := preferencesOf(c)
	switch {
	case p.wait > 0:
		return preferredWait(c), nil
	case p.async:
		c.Set(headerPreferenceApplied, "respond-async")
		return 0, nil
	}
	return wait, nil
}
