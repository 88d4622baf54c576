// Package bench holds the measurements of Volley: nothing imports it.
//
//	go run ./bench/compare                 the jobs of the targets, against peers
//	go run ./bench/compare -only P1,P4     some of them
//	go run ./bench/roofline                what the machine does without a transport
//	go run ./bench/plot -o plot.svg out.json    a picture of compare's -json output
//	go test -bench . -benchmem ./bench     the parts, one by one
//
// RESULTS.md has the latest figures, and how they came about.
package bench
