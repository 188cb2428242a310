package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Kinds in the order in which they are drawn, and what they are called.
var (
	kinds = []string{"Floor", "Pod", "Job", "Cold", "Image", "Warm"}
	names = map[string]string{
		"Floor": "API floor", "Pod": "bare Pod", "Job": "bare Job",
		"Cold": "cold call", "Image": "cold, runner\nin image", "Warm": "warm call",
	}
	blue   = color.RGBA{R: 31, G: 119, B: 180, A: 255}
	orange = color.RGBA{R: 255, G: 127, B: 14, A: 255}
	red    = color.RGBA{R: 214, G: 39, B: 40, A: 255}
	grey   = color.RGBA{R: 120, G: 120, B: 120, A: 255}
	black  = color.RGBA{A: 255}
)

// Sizes of one panel.
const (
	panelWidth  = 16 * vg.Centimeter
	panelHeight = 12 * vg.Centimeter
	resolution  = 96
)

// render draws the panels that there is something to draw in.
func render(r *report) ([]byte, error) {
	var panels []*plot.Plot
	for _, make := range []func(*report) (*plot.Plot, error){onePanel, burstPanel, ratePanel} {
		panel, err := make(r)
		if err != nil {
			return nil, err
		}
		if panel != nil {
			panels = append(panels, panel)
		}
	}
	if len(panels) == 0 {
		return nil, errors.New("there is nothing to draw: the file has neither rounds nor bursts nor rates")
	}
	return sideBySide(panels)
}

func newPanel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Y.Label.Text = "seconds"
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = decades{}
	p.Legend.Top = true
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.RGBA{R: 225, G: 225, B: 225, A: 255}
	p.Add(grid)
	return p
}

// decades are ticks at 1, 2 and 5 of each power of ten, as decimals.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := 0.0001; power < 10000; power *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if v := power * factor; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.3g", v)})
			}
		}
	}
	return ticks
}

// dots are values under a name in the legend.
type dots struct {
	name  string
	color color.Color
	shape draw.GlyphDrawer
}

// column is a place on the horizontal axis, with one value for each of the panel's dots.
type column struct {
	label  string
	values []float64
}

// dotPanel draws a column of dots for each label.
func dotPanel(title string, all []dots, columns []column) (*plot.Plot, error) {
	if len(columns) == 0 {
		return nil, nil
	}
	p := newPanel(title)
	var labels []string
	for _, c := range columns {
		labels = append(labels, c.label)
	}
	for i, d := range all {
		var at plotter.XYs
		for x, c := range columns {
			at = append(at, plotter.XY{X: float64(x), Y: c.values[i]})
		}
		s, err := plotter.NewScatter(at)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", d.name, err)
		}
		s.GlyphStyle = draw.GlyphStyle{Color: d.color, Shape: d.shape, Radius: vg.Points(4)}
		p.Add(s)
		p.Legend.Add(d.name, s)
	}
	p.NominalX(labels...)
	span(p)
	return p, nil
}

// span makes room above and below the values, and shows all of the log scale that they need.
func span(p *plot.Plot) {
	p.Y.Min, p.Y.Max = p.Y.Min/1.6, p.Y.Max*5
}

// onePanel shows the kinds one at a time.
func onePanel(r *report) (*plot.Plot, error) {
	var columns []column
	for _, kind := range kinds {
		if s, ok := r.Totals[kind]; ok {
			columns = append(columns, column{names[kind], []float64{s.P50, s.P90, s.P99}})
		}
	}
	return dotPanel("One at a time, create to end seen", []dots{
		{"p50", blue, draw.CircleGlyph{}}, {"p90", orange, draw.TriangleGlyph{}}, {"p99", red, draw.CrossGlyph{}},
	}, columns)
}

// burstPanel shows the bursts: median, p99 and the last one, by kind and size.
func burstPanel(r *report) (*plot.Plot, error) {
	var columns []column
	for _, kind := range kinds {
		for _, b := range r.Bursts {
			if b.Kind == kind {
				columns = append(columns, column{fmt.Sprintf("%s\n%d", names[kind], b.Size), []float64{b.Each.P50, b.Each.P99, b.Seconds}})
			}
		}
	}
	p, err := dotPanel("Many at the same time", []dots{
		{"p50", blue, draw.CircleGlyph{}}, {"p99", red, draw.CrossGlyph{}}, {"all ended", black, draw.PlusGlyph{}},
	}, columns)
	if p != nil {
		p.X.Tick.Label.Font.Size = vg.Points(7)
	}
	return p, err
}

// ratePanel shows latency against the rate of arrivals.
func ratePanel(r *report) (*plot.Plot, error) {
	if len(r.Rates) == 0 {
		return nil, nil
	}
	p := newPanel("Calls that come by the clock")
	p.X.Label.Text = "calls a second"
	for _, of := range []struct {
		kind  string
		color color.Color
	}{{"Cold", blue}, {"Warm", orange}} {
		var median, tail plotter.XYs
		for _, x := range r.Rates {
			if x.Kind == of.kind {
				median = append(median, plotter.XY{X: x.Rate, Y: x.Each.P50})
				tail = append(tail, plotter.XY{X: x.Rate, Y: x.Each.P99})
			}
		}
		if len(median) == 0 {
			continue
		}
		dashes := []vg.Length{vg.Points(4), vg.Points(3)}
		if err := errors.Join(addLine(p, names[of.kind]+" p50", median, of.color, dashes), addLine(p, names[of.kind]+" p99", tail, of.color, nil)); err != nil {
			return nil, err
		}
	}
	limit := plotter.NewFunction(func(float64) float64 { return 1 })
	limit.Color = grey
	p.Add(limit)
	span(p)
	return p, nil
}

func addLine(p *plot.Plot, name string, at plotter.XYs, c color.Color, dashes []vg.Length) error {
	line, points, err := plotter.NewLinePoints(at)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	line.Color, line.Dashes, points.Color, points.Shape = c, dashes, c, draw.CircleGlyph{}
	p.Add(line, points)
	p.Legend.Add(name, line, points)
	return nil
}

func sideBySide(panels []*plot.Plot) ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(panelWidth*vg.Length(len(panels)), panelHeight), vgimg.UseDPI(resolution))
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Centimeter, PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(6)}
	for i, c := range plot.Align([][]*plot.Plot{panels}, tiles, draw.New(canvas))[0] {
		panels[i].Draw(c)
	}
	out := new(bytes.Buffer)
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(out); err != nil {
		return nil, fmt.Errorf("encode the plot: %w", err)
	}
	return out.Bytes(), nil
}
