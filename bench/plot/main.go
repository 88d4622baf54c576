// Command plot draws what compare measured: throughput, and CPU time per gigabyte, by
// stack, as an SVG.
//
//	go run ./bench/compare -only P1,P2,P3,P4,P5 -json > bulk.json
//	go run ./bench/plot -o bench/bulk.svg bulk.json
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// stack is what one stack did: first quartile, median, third quartile.
type stack struct {
	Name     string     `json:"name"`
	Gbit     [3]float64 `json:"gbit_per_s"`
	Sender   [3]float64 `json:"sender_cpu_s_per_gb"`
	Receiver [3]float64 `json:"receiver_cpu_s_per_gb"`
}

func main() {
	out := flag.String("o", "bulk.svg", "file to write")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: plot [-o file.svg] [compare's JSON; default: standard input]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(out string, args []string) error {
	var in io.Reader = os.Stdin
	if len(args) > 1 {
		return fmt.Errorf("one file at a time: unexpected argument %q", args[1])
	}
	if len(args) > 0 {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	stacks, err := read(in)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := picture(f, stacks); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// read finds the stacks in what compare wrote.
func read(r io.Reader) ([]stack, error) {
	var jobs []struct {
		Stacks []stack `json:"stacks"`
	}
	if err := json.NewDecoder(r).Decode(&jobs); err != nil {
		return nil, fmt.Errorf("this is not compare's -json output: %w", err)
	}
	for _, j := range jobs {
		if len(j.Stacks) > 0 {
			return j.Stacks, nil
		}
	}
	return nil, errors.New("no figures by stack in there: run compare with P1 (and P5, for TCP and large datagrams)")
}

var (
	blue   = color.RGBA{0x2b, 0x6c, 0xb0, 0xff}
	orange = color.RGBA{0xdd, 0x6b, 0x20, 0xff}
	green  = color.RGBA{0x2f, 0x85, 0x5a, 0xff}
)

// picture writes the SVG.
func picture(w io.Writer, stacks []stack) error {
	canvas := vgsvg.New(24*vg.Centimeter, 11*vg.Centimeter)
	if err := paint(draw.New(canvas), stacks); err != nil {
		return err
	}
	_, err := canvas.WriteTo(w)
	return err
}

// paint draws two charts beside each other.
func paint(dc draw.Canvas, stacks []stack) error {
	speed, err := chart("Throughput", "Gbit/s", stacks, []series{
		{"", blue, func(s stack) [3]float64 { return s.Gbit }},
	})
	if err != nil {
		return err
	}
	cost, err := chart("CPU time", "CPU-seconds per GB", stacks, []series{
		{"sender", green, func(s stack) [3]float64 { return s.Sender }},
		{"receiver", orange, func(s stack) [3]float64 { return s.Receiver }},
	})
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 8 * vg.Millimeter, PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 3 * vg.Millimeter}
	speed.Draw(tiles.At(dc, 0, 0))
	cost.Draw(tiles.At(dc, 1, 0))
	return nil
}

// series is one bar for each stack.
type series struct {
	name  string
	color color.Color
	of    func(stack) [3]float64
}

// chart is a bar chart with the quartiles as error bars.
func chart(title, unit string, stacks []stack, all []series) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = title
	p.Y.Label.Text = unit
	p.Y.Min = 0
	p.Legend.Top = true
	names := make([]string, len(stacks))
	for i, s := range stacks {
		names[i] = s.Name
	}
	p.NominalX(names...)
	p.X.Tick.Label.Rotation = 0.5
	p.X.Tick.Label.XAlign = draw.XRight
	width := vg.Points(44) / vg.Length(len(all))
	if len(all) == 1 {
		width /= 2
	}
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	for i, s := range all {
		values := make(plotter.Values, len(stacks))
		labels := plotter.XYLabels{XYs: make(plotter.XYs, len(stacks)), Labels: make([]string, len(stacks))}
		spread := quartiles{XYs: make(plotter.XYs, len(stacks)), YErrors: make(plotter.YErrors, len(stacks))}
		for j, x := range stacks {
			q := s.of(x)
			values[j] = q[1]
			labels.XYs[j] = plotter.XY{X: float64(j), Y: q[2]}
			labels.Labels[j] = fmt.Sprintf("%.2g", q[1])
			spread.XYs[j] = plotter.XY{X: float64(j), Y: q[1]}
			spread.YErrors[j].Low, spread.YErrors[j].High = q[1]-q[0], q[2]-q[1]
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, err
		}
		bars.Color = s.color
		bars.LineStyle.Width = 0
		bars.Offset = width * (vg.Length(i) - vg.Length(len(all)-1)/2)
		p.Add(bars)
		if s.name != "" {
			p.Legend.Add(s.name, bars)
		}
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, err
		}
		text.Offset = vg.Point{X: bars.Offset, Y: vg.Points(3)}
		for j := range text.TextStyle {
			text.TextStyle[j].XAlign = draw.XCenter
			text.TextStyle[j].Font.Size = vg.Points(8)
		}
		p.Add(text)
		if len(all) == 1 { // with several bars to a stack they would be in the wrong place
			lines, err := plotter.NewYErrorBars(spread)
			if err != nil {
				return nil, err
			}
			p.Add(lines)
		}
	}
	p.Y.Max *= 1.08 // room for the labels
	return p, nil
}

// quartiles is a point with its spread.
type quartiles struct {
	plotter.XYs
	plotter.YErrors
}
