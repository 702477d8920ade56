package web

import (
	"cmp"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
)

// QueryBool reads a parameter that is true or false; it is false if it is not given. The
// error is an InvalidRequest.
func QueryBool(c *fiber.Ctx, name string) (bool, error) {
	if !c.Context().QueryArgs().Has(name) {
		return false, nil
	}
	given, err := strconv.ParseBool(c.Query(name))
	if err != nil {
		return false, Errorf(InvalidRequest, "%s must be true or false, got %.20q", name, c.Query(name))
	}
	return given, nil
}

// Since reads the parameter since: an instant, or how long before now it was, as
// 10m. "" is the zero time. The error is an InvalidRequest.
func Since(text string, now time.Time) (time.Time, error) { return parseInstant("since", text, now) }

// Span reads the parameters from and to, which are as since. Without to it is now, without
// from it is standard before to. The span must not be empty, nor longer than most in whole
// minutes: a client counts back from its own now, which is before the server's.
func Span(c *fiber.Ctx, now time.Time, standard, most time.Duration) (from, to time.Time, err error) {
	if to, err = parseInstant("to", c.Query("to"), now); err != nil {
		return from, to, err
	}
	to = cmp.Or(to, now)
	if from, err = parseInstant("from", c.Query("from"), now); err != nil {
		return from, to, err
	}
	from = cmp.Or(from, to.Add(-standard))
	if span := to.Sub(from); span <= 0 || span.Truncate(time.Minute) > most {
		return from, to, Errorf(InvalidRequest, "the time between from and to is invalid; must be more than 0s and at most %v, got %v", most, span)
	}
	return from, to, nil
}

// Bounds reads the parameters from and to, each of which may be missing: the zero time.
// From must be before to.
func Bounds(c *fiber.Ctx, now time.Time) (from, to time.Time, err error) {
	if from, err = parseInstant("from", c.Query("from"), now); err != nil {
		return from, to, err
	}
	if to, err = parseInstant("to", c.Query("to"), now); err == nil && !to.IsZero() && !from.Before(to) {
		err = Errorf(InvalidRequest, "the time between from and to is invalid; must be more than 0s, got %v", to.Sub(from))
	}
	return from, to, err
}

// parseInstant reads the value of a parameter: an instant, or how long before now it was;
// the zero time for "". The error is an InvalidRequest with the parameter's name.
func parseInstant(name, value string, now time.Time) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(value); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, Errorf(InvalidRequest, "%s is invalid; must be an instant as 2026-01-31T12:00:00Z, or how long ago as 90s, 10m or 24h, got %.50q", name, value)
	}
	if at.IsZero() {
		at = at.Add(1) // the zero time is that of no parameter
	}
	return at, nil
}
