"""`textlane doctor`: which known symptom does a service, a training or a bundle show?"""
