package web

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
)

// AnswerWithin bounds all of a request but its waiting, from the moment it was
// read: when JetStream is away, nobody hangs for longer than 5 s.
const AnswerWithin = 4500 * time.Millisecond

// Prompt is the context of the calls that a request makes: it ends AnswerWithin
// after the request was read.
func Prompt(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	return context.WithDeadline(c.UserContext(), c.Context().Time().Add(AnswerWithin))
}

// Since reads the parameter since: an instant, or how long before now it was, as
// 10m. "" is the zero time. The error is an InvalidRequest.
func Since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, Errorf(InvalidRequest, "since is invalid; must be an instant as 2026-01-31T12:00:00Z, or how long ago as 90s, 10m or 24h")
	}
	return at, nil
}

// Stamp is an instant as answers show it, in UTC with milliseconds; "" for the
// zero time.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
