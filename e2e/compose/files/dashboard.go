// Package files looks at the compose files and at what they mount, without an
// engine and in a moment: compose is a library here.
package files

import (
	"encoding/json"
	"fmt"
	"os"
)

// Dashboard is what the tests read of dashboard.json.
type Dashboard struct {
	Panels []struct {
		Title      string `json:"title"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// ReadDashboard reads dashboard.json in that folder.
func ReadDashboard(folder string) (d Dashboard, err error) {
	text, err := os.ReadFile(folder + "dashboard.json")
	if err != nil {
		return d, fmt.Errorf("read the dashboard: %w", err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("read the dashboard: %w", err)
	}
	return d, nil
}
