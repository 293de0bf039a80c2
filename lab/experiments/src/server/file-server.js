// Serves the files of a folder: node file-server.js FOLDER PORT
const fs = require('fs');
const http = require('http');
const path = require('path');

const [root, port] = process.argv.slice(2);

http.createServer((request, response) => {
    const file = path.join(root, path.normalize(decodeURI(request.url)));
    fs.stat(file, (error, about) => {
        if (error || !about.isFile()) {
            response.writeHead(404).end();
            return;
        }
        response.writeHead(200, { 'Content-Length': about.size });
        fs.createReadStream(file).on('error', () => response.destroy()).pipe(response);
    });
}).listen(Number(port), '127.0.0.1');
