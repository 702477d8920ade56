package openapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gofiber/fiber/v2"

	"flightline/shared/openapi"
)

func TestTheDocumentIsValidWithItsExamples(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}

// Of two members of one name a reader takes the last.
func TestNoNameIsThereTwice(t *testing.T) {
	d := json.NewDecoder(bytes.NewReader(openapi.JSON()))
	var walk func(path string)
	walk = func(path string) {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('['):
			for d.More() {
				walk(path)
			}
		case json.Delim('{'):
			names := map[json.Token]bool{}
			for d.More() {
				name, err := d.Token()
				if err != nil {
					t.Fatal(err)
				}
				if names[name] {
					t.Errorf("%s has %v twice", path, name)
				}
				names[name] = true
				walk(fmt.Sprintf("%s/%v", path, name))
			}
		default:
			return
		}
		if _, err := d.Token(); err != nil { // the end
			t.Fatal(err)
		}
	}
	walk("")
}

// What is defined and used nowhere is out of date.
func TestEverySchemaIsUsed(t *testing.T) {
	var doc struct {
		Components map[string]map[string]any `json:"components"`
	}
	if err := json.Unmarshal(openapi.JSON(), &doc); err != nil {
		t.Fatal(err)
	}
	for kind, named := range doc.Components {
		for name := range named {
			if kind == "securitySchemes" || name == "MethodNotAllowed" { // any path may answer so
				continue
			}
			if reference := `"#/components/` + kind + "/" + name + `"`; !bytes.Contains(openapi.JSON(), []byte(reference)) {
				t.Errorf("%s is used nowhere", reference)
			}
		}
	}
}

func TestItIsServedWithoutAKey(t *testing.T) {
	app := fiber.New()
	openapi.Routes(app)
	answer, err := app.Test(httptest.NewRequest(http.MethodGet, openapi.Path, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "application/json" || !bytes.Equal(got, openapi.JSON()) {
		t.Errorf("got %d %s, %v, %d bytes, want the document", answer.StatusCode, answer.Header.Get("Content-Type"), err, len(got))
	}
}

func TestJSONIsACopy(t *testing.T) {
	openapi.JSON()[0] = 'x'
	if openapi.JSON()[0] != '{' {
		t.Error("a caller changed the document")
	}
}
