package api

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/web"
)

// following is where in a list that is followed a request begins, if it resumes, and
// whether it ends with the newest entry of now. P is a place in the list.
type following[P any] struct {
	after        P
	resume, once bool
}

// followingOf reads the parameters follow and cursor, and the header Last-Event-ID. noun is
// what has an id in the list, as "an event".
func followingOf[P any](c *fiber.Ctx, noun string, parse func(text string) (P, error)) (p following[P], err error) {
	switch c.Query("follow") {
	case "", "true":
	case "false":
		p.once = true
	default:
		return p, web.Errorf(web.InvalidRequest, "follow is invalid; must be true or false, got %.20q", c.Query("follow"))
	}
	text, name := c.Query("cursor"), "cursor"
	p.resume = c.Context().QueryArgs().Has(name)
	if id := c.Get(headerLastEventID); id != "" { // the newer of the two: a client that came back
		text, name, p.resume = id, headerLastEventID, true
	}
	if !p.resume {
		return p, nil
	}
	if p.after, err = parse(strings.TrimSpace(text)); err != nil {
		return p, web.Errorf(web.InvalidRequest, "%s is invalid; must be the id of %s, or 0, got %.50q", name, noun, text)
	}
	return p, nil
}

// followText is what is written on a connection on which a list is followed. An id
// without data moves the client's Last-Event-ID on, so that it misses nothing if it comes
// back before it has heard of an entry, and skips what it does not want.
type followText struct {
	text  bytes.Buffer // what is being written
	begun bool
	over  bool // the end is written
}

// start makes room for what comes next. It returns what is to be written first, with the
// place where the list begins; io.EOF behind the end; and else nothing.
func (t *followText) start(after string) ([]byte, error) {
	if t.over {
		return nil, io.EOF
	}
	if t.text.Cap() > keptBuffer {
		t.text = bytes.Buffer{}
	}
	t.text.Reset() // it was written
	if t.begun {
		return nil, nil
	}
	t.begun = true
	fmt.Fprintf(&t.text, "retry: %d\nid: %s\n\n", comeBack.Milliseconds(), after)
	return t.text.Bytes(), nil
}

// add writes an entry. Its name is "" for none.
func (t *followText) add(id, name string, data []byte) {
	t.text.WriteString("id: ")
	t.text.WriteString(id)
	if name != "" {
		t.text.WriteString("\nevent: ")
		t.text.WriteString(name)
	}
	t.text.WriteString("\ndata: ")
	t.text.Write(data)
	t.text.WriteString("\n\n")
}

// alive writes a comment, and how far the list was looked at.
func (t *followText) alive(after string) { fmt.Fprintf(&t.text, ": keep-alive\nid: %s\n\n", after) }

// end writes the last event.
func (t *followText) end() {
	t.over = true
	t.text.WriteString("event: end\ndata: {}\n\n")
}
