package console

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/job"
	"flightline/shared/web"
)

// media is a picture or a sound within an output.
type media struct {
	Index int
	// Kind is "image" or "audio", Type one of mediaTypes.
	Kind, Type string
	Bytes      int
	encoded    string
}

// mediaTypes are shown by a browser and run nothing; a picture of SVG could.
var mediaTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "audio/mpeg", "audio/wave", "audio/ogg", "audio/flac"}

// otherMediaTypes are further names of some of them.
var otherMediaTypes = map[string]string{"audio/wav": "audio/wave", "audio/x-wav": "audio/wave", "audio/mp3": "audio/mpeg"}

// bareMedia begin pictures that come as base64 alone.
var bareMedia = map[string]string{"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif"}

const (
	maxMedia = 20
	// minBare is how long a text is at least that is taken for a picture by its beginning.
	minBare = 200
)

// mediaIn finds pictures and sounds in an output, the same ones in the same order each time.
func mediaIn(output json.RawMessage) []media {
	if !bytes.Contains(output, []byte("base64,")) && len(output) < minBare {
		return nil
	}
	var found []media
	decoder := json.NewDecoder(bytes.NewReader(output))
	for len(found) < maxMedia {
		token, err := decoder.Token()
		if err != nil {
			return found
		}
		value, isText := token.(string)
		if !isText {
			continue
		}
		if m, ok := mediaOf(value); ok {
			m.Index = len(found)
			found = append(found, m)
		}
	}
	return found
}

func mediaOf(value string) (media, bool) {
	if rest, ok := strings.CutPrefix(value, "data:"); ok {
		kind, data, ok := strings.Cut(rest, ";base64,")
		kind = cmp.Or(otherMediaTypes[kind], kind)
		return mediaFrom(kind, data), ok && slices.Contains(mediaTypes, kind)
	}
	if len(value) < minBare {
		return media{}, false
	}
	for prefix, kind := range bareMedia {
		if strings.HasPrefix(value, prefix) {
			return mediaFrom(kind, value), true
		}
	}
	return media{}, false
}

func mediaFrom(kind, data string) media {
	name, _, _ := strings.Cut(kind, "/")
	return media{Kind: name, Type: kind, Bytes: base64.StdEncoding.DecodedLen(len(data)), encoded: data}
}

// serveMedia answers with a picture or a sound of an output.
func (s *Service) serveMedia(c *fiber.Ctx) error {
	found, err := s.session(c)
	if err != nil {
		return err
	}
	ctx, cancel := web.RequestContext(c)
	defer cancel()
	j, err := found.api.Queue.Status(ctx, strings.Clone(c.Params("endpoint")), job.ID(strings.Clone(c.Params("id"))))
	if err != nil {
		return err
	}
	all := mediaIn(j.Output)
	i, err := strconv.Atoi(c.Params("index"))
	if err != nil || i < 0 || i >= len(all) {
		return &pageError{status: http.StatusNotFound, text: "The output has no such picture or sound."}
	}
	data, err := base64.StdEncoding.DecodeString(all[i].encoded)
	if err != nil {
		return &pageError{status: http.StatusNotFound, text: "The picture or sound is not base64."}
	}
	c.Set(fiber.HeaderContentSecurityPolicy, "default-src 'none'; sandbox")
	c.Set(fiber.HeaderContentType, all[i].Type)
	return c.Send(data)
}
