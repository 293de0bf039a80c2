// The file server of Go's own library, as a program: gofile ADDRESS DIR. One of the servers of the scenario works-with.
package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: gofile ADDRESS DIR")
	}
	log.Fatal(http.ListenAndServe(os.Args[1], http.FileServer(http.Dir(os.Args[2]))))
}
