package console

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Charts are SVG with classes; app.css has the colours. The text beside a sparkline has its
// number, so the drawing is hidden from readers of the screen.

const sparkWidth, sparkHeight = 120, 28

// spark draws values as a small area, all at the same distance; class is "ok", "bad" or
// "time".
func spark(class string, values []int64) template.HTML {
	if len(values) < 2 || slices.Max(values) == 0 {
		return template.HTML(fmt.Sprintf(`<svg class="spark flat" viewBox="0 0 %d %d" aria-hidden="true"><path class="base" d="M0 %d.5H%d"/></svg>`, sparkWidth, sparkHeight, sparkHeight-1, sparkWidth)) //nolint:gosec // digits
	}
	line := lineOf(values, slices.Max(values), sparkWidth, sparkHeight-2)
	return template.HTML(fmt.Sprintf(`<svg class="spark c-%s" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true"><path class="area" d="%sV%dH0Z"/><path class="line" d="%s"/></svg>`, //nolint:gosec // digits and a class of ours
		template.HTMLEscapeString(class), sparkWidth, sparkHeight, line, sparkHeight, line))
}

// lineOf is the path through the values; top is the value at the upper edge.
func lineOf(values []int64, top int64, width, height float64) string {
	var path strings.Builder
	for i, v := range values {
		if i > 0 && i < len(values)-1 && values[i-1] == v && values[i+1] == v {
			continue // on the line between its neighbours
		}
		x, y := width*float64(i)/float64(max(1, len(values)-1)), height*(1-float64(v)/float64(max(1, top)))+1
		command := "L"
		if i == 0 {
			command = "M"
		}
		path.WriteString(command + short1(x) + " " + short1(y))
	}
	return path.String()
}

func short1(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// series is a line, or a part of the stacked bars, of a chart.
type series struct {
	Name, Class string
	Values      []int64
}

// plot is a chart over time.
type plot struct {
	Title string
	// Unit is "" for numbers, "ms" for durations.
	Unit  string
	First time.Time
	Step  time.Duration
	// Stacked draws bars on top of each other, else lines.
	Stacked bool
	Series  []series
}

const plotWidth, plotHeight, plotLeft, plotBottom = 640, 180, 48, 20

// Empty reports whether there is nothing to draw.
func (p plot) Empty() bool {
	return !slices.ContainsFunc(p.Series, func(s series) bool { return len(s.Values) > 0 && slices.Max(s.Values) > 0 })
}

func (p plot) text(v int64) string {
	if p.Unit == "ms" {
		return millis(v)
	}
	return number(v)
}

// top is the value at the upper edge: 1, 2 or 5 with zeros.
func (p plot) top() int64 {
	most := int64(1)
	for i := range p.length() {
		stacked := int64(0)
		for _, s := range p.Series {
			most = max(most, s.Values[i])
			stacked += s.Values[i]
		}
		if p.Stacked {
			most = max(most, stacked)
		}
	}
	for scale := int64(1); ; scale *= 10 {
		for _, step := range []int64{1, 2, 5} {
			if step*scale >= most {
				return step * scale
			}
		}
	}
}

func (p plot) length() int {
	if len(p.Series) == 0 {
		return 0
	}
	return len(p.Series[0].Values)
}

// chart draws a plot with its axes. static/chart.js reads data-… for what the pointer is at.
func chart(p plot) template.HTML {
	var b strings.Builder
	top := p.top()
	width, height := float64(plotWidth-plotLeft), float64(plotHeight-plotBottom)
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s" data-first="%d" data-step="%d" data-left="%d" data-width="%d">`,
		plotWidth, plotHeight, template.HTMLEscapeString(p.Title), p.First.UnixMilli(), p.Step.Milliseconds(), plotLeft, plotWidth-plotLeft)
	lines := int64(2)
	if top == 1 && p.Unit == "" {
		lines = 1 // there is no half of a worker
	}
	for i := range lines + 1 {
		y := height * float64(i) / float64(lines)
		fmt.Fprintf(&b, `<path class="grid" d="M%d %sH%d"/><text class="tick y" x="%d" y="%s">%s</text>`, plotLeft, short1(y+.5), plotWidth, plotLeft-6, short1(max(9, y+3)), p.text(top-top*i/lines))
	}
	for i := range 5 {
		at := p.First.Add(p.Step * time.Duration(p.length()-1) * time.Duration(i) / 4)
		anchor := []string{"start", "middle", "middle", "middle", "end"}[i]
		form := "15:04"
		if p.Step*time.Duration(p.length()) > 36*time.Hour {
			form = "01-02 15:04"
		}
		fmt.Fprintf(&b, `<text class="tick" text-anchor="%s" x="%s" y="%d">%s</text>`, anchor, short1(plotLeft+width*float64(i)/4), plotHeight-4, at.UTC().Format(form))
	}
	if p.Stacked {
		p.drawBars(&b, top, width, height)
	} else {
		for _, s := range p.Series {
			fmt.Fprintf(&b, `<g transform="translate(%d 0)"><path class="line c-%s" data-name="%s" data-values="%s" data-unit="%s" d="%s"/></g>`,
				plotLeft, s.Class, s.Name, joined(s.Values), p.Unit, lineOf(s.Values, top, width, height))
		}
	}
	fmt.Fprintf(&b, `<path class="cursor" d="M0 0V%s"/></svg>`, short1(height))
	return template.HTML(b.String()) //nolint:gosec // numbers, and names of ours
}

func (p plot) drawBars(b *strings.Builder, top int64, width, height float64) {
	base := make([]int64, p.length())
	each := width / float64(max(1, p.length()))
	for _, s := range p.Series {
		var path strings.Builder
		for i, v := range s.Values {
			if v == 0 {
				continue
			}
			low, high := height*(1-float64(base[i])/float64(top)), height*(1-float64(base[i]+v)/float64(top))
			fmt.Fprintf(&path, "M%s %sV%sh%sV%sZ", short1(plotLeft+each*float64(i)), short1(low), short1(high), short1(max(each*.85, .8)), short1(low))
			base[i] += v
		}
		fmt.Fprintf(b, `<path class="bar c-%s" data-name="%s" data-values="%s" data-unit="%s" d="%s"/>`, s.Class, s.Name, joined(s.Values), p.Unit, path.String())
	}
}

func joined(values []int64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatInt(v, 10)
	}
	return strings.Join(texts, ",")
}

// bars is a share of a whole as a bar of two parts.
func bars(part, whole int64) template.HTML {
	width := 0.0
	if whole > 0 {
		width = 100 * float64(part) / float64(whole)
	}
	return template.HTML(fmt.Sprintf(`<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" height="6"/><rect class="part" width="%s" height="6"/></svg>`, short1(width))) //nolint:gosec // digits
}
