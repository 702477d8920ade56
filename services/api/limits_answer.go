package api

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/limit"
	"flightline/shared/web"
)

// The header fields of draft-ietf-httpapi-ratelimit-headers, spelled as there.
var (
	headerRateLimit       = []byte("RateLimit")
	headerRateLimitPolicy = []byte("RateLimit-Policy")
)

// policyOf is the value of RateLimit-Policy, "" if nothing is bounded. The unit
// of the second item is the draft's name for what is allowed at once.
func policyOf(operation string, b limit.Bounds) []byte {
	var p []byte
	if b.Requests > 0 {
		p = fmt.Appendf(p, `"%s";q=%d;w=%d`, operation, b.Requests, int(limit.Span/time.Second))
	}
	if b.Concurrent > 0 {
		if p != nil {
			p = append(p, ", "...)
		}
		p = fmt.Appendf(p, `"%s-concurrent";q=%d;qu="concurrent-requests"`, operation, b.Concurrent)
	}
	return p
}

// tell puts the fields into the answer, whatever else it will be.
func (o *operation) tell(c *fiber.Ctx, b *bounds, v limit.Verdict) {
	header := &c.Response().Header
	header.SetCanonical(headerRateLimitPolicy, b.policy)
	if b.share.Requests == 0 {
		return
	}
	var buffer [96]byte
	value := append(buffer[:0], '"')
	value = append(value, o.name...)
	value = append(value, `";r=`...)
	value = strconv.AppendInt(value, int64(v.Left), 10)
	value = append(value, ";t="...)
	value = strconv.AppendInt(value, seconds(v.Reset), 10)
	header.SetCanonical(headerRateLimit, value)
}

// refuse answers 429. The text names the bound of all instances together.
func (o *operation) refuse(c *fiber.Ctx, b *bounds, v limit.Verdict) error {
	wait := max(1, seconds(v.Reset))
	if v.Refused == limit.ByConcurrent {
		wait = 1 // any of those under way may end
	}
	c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(wait, 10))
	what, whose := o.name+" requests", "endpoint"
	if o.name == limit.Key {
		what, whose = "requests", "key"
	}
	if v.Refused == limit.ByConcurrent {
		return web.Errorf(web.TooManyRequests, "too many %s at once: this %s allows %d", what, whose, b.whole.Concurrent)
	}
	return web.Errorf(web.TooManyRequests, "too many %s: this %s allows %d in 10 s; try again in %d s", what, whose, b.whole.Requests, wait)
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
