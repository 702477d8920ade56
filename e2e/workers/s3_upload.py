"""Writes a file and uploads it, to the bucket that the job brings in s3Config
or else to $BUCKET_NAME at $BUCKET_ENDPOINT_URL, and returns its address."""

import os
import tempfile

import runpod
from runpod.serverless.utils import upload_file_to_bucket


def handler(job):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(job["input"].get("text", ""))
        bucket = job.get("s3Config")
        name = bucket["bucketName"] if bucket else os.environ.get("BUCKET_NAME")
        address = upload_file_to_bucket("result.txt", path, bucket, name, prefix=job["id"])
    return {"url": address}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
