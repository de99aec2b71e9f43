"""What is watched for DATA rules alone."""
