package api

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/api"
	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/web"
	"flightline/streams"
)

const (
	// maxPoints is how many points one answer may have room for.
	maxPoints = 2880
	// byMinuteSpan is the longest span that is answered by the minute unless the
	// request names a step.
	byMinuteSpan = 24 * time.Hour
	// defaultFailuresSpan is the span of failures unless the request names one.
	defaultFailuresSpan = 24 * time.Hour
	// maxFailureGroups bounds an answer about failures.
	maxFailureGroups = 1000
)

// stats answers what happened at an endpoint, by the minute or by the hour.
func (s *Service) stats(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	from, to, err := web.Span(c, s.queue.Now(), time.Hour, streams.StatsByHourAge)
	if err != nil {
		return err
	}
	step, err := stepOf(c, to.Sub(from))
	if err != nil {
		return err
	}
	from = from.Truncate(step)
	v := api.Stats{Endpoint: e.ID, From: api.FormatTime(from), To: api.FormatTime(to), Step: int(step / time.Second), Points: []api.StatsPoint{}}
	points, err := s.events.Points(ctx, e.ID, notBefore(from, e, step), to, step)
	if err != nil {
		return err
	}
	for _, p := range points {
		v.Points = append(v.Points, api.StatsPointOf(p.At, p.Point))
	}
	return c.JSON(v)
}

// notBefore leaves out what an earlier endpoint of the same id has left.
func notBefore(from time.Time, e endpoint.Endpoint, step time.Duration) time.Time {
	if made := e.Created.Truncate(step); from.Before(made) {
		return made
	}
	return from
}

// stepOf reads the parameter step, in seconds.
func stepOf(c *fiber.Ctx, span time.Duration) (time.Duration, error) {
	step := time.Hour
	switch text := c.Query("step"); text {
	case "":
		if span.Truncate(time.Minute) <= byMinuteSpan {
			step = time.Minute
		}
	case "60":
		step = time.Minute
	case "3600":
	default:
		return 0, web.Errorf(web.InvalidRequest, "step is invalid; must be 60 or 3600, in seconds, got %.20q", text)
	}
	if points := int(span / step); points > maxPoints {
		return 0, web.Errorf(web.InvalidRequest, "the time between from and to has %d steps of %d s; must be at most %d", points, int(step/time.Second), maxPoints)
	}
	return step, nil
}

// failures answers why jobs of an endpoint failed.
func (s *Service) failures(ctx context.Context, c *fiber.Ctx, e endpoint.Endpoint) error {
	return s.answerFailures(ctx, c, []endpoint.Endpoint{e})
}

// allFailures is failures of all endpoints that the key may read.
func (s *Service) allFailures(ctx context.Context, c *fiber.Ctx) error {
	endpoints, err := s.readable(ctx, c)
	if err != nil {
		return err
	}
	return s.answerFailures(ctx, c, endpoints)
}

func (s *Service) answerFailures(ctx context.Context, c *fiber.Ctx, endpoints []endpoint.Endpoint) error {
	from, to, err := web.Span(c, s.queue.Now(), defaultFailuresSpan, streams.StatsByMinuteAge)
	if err != nil {
		return err
	}
	all := []api.FailureGroup{}
	groups, err := s.events.Failures(ctx, endpointIDs(endpoints), from, to)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		for _, g := range api.FailureGroupsOf(e.ID, groups[e.ID]) {
			if g.LastAt >= api.FormatTime(e.Created) { // not of an earlier endpoint of the id
				all = append(all, g)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b api.FailureGroup) int { return int(b.Count - a.Count) })
	return c.JSON(all[:min(len(all), maxFailureGroups)])
}

func endpointIDs(endpoints []endpoint.Endpoint) []string {
	ids := make([]string, len(endpoints))
	for i, e := range endpoints {
		ids[i] = e.ID
	}
	return ids
}

// readable are the endpoints that the caller's key may read, by their ids.
func (s *Service) readable(ctx context.Context, c *fiber.Ctx) ([]endpoint.Endpoint, error) {
	all, err := s.registry.Endpoints.Known(ctx)
	if err != nil {
		return nil, err
	}
	key := web.Caller(c)
	var list []endpoint.Endpoint // Known's list is shared
	for _, e := range all {
		if key.Allows(e.ID, registry.Read) {
			list = append(list, e)
		}
	}
	return list, nil
}

// limitOf reads the parameter limit.
func limitOf(c *fiber.Ctx, standard, most int) (int, error) {
	if !c.Context().QueryArgs().Has("limit") {
		return standard, nil
	}
	limit, err := strconv.Atoi(c.Query("limit"))
	if err != nil || limit < 1 || limit > most {
		return 0, web.Errorf(web.InvalidRequest, "limit is invalid; must be between 1 and %d, got %.20q", most, c.Query("limit"))
	}
	return limit, nil
}
